"""Models that join or leave a pool: what is checked first, what a model brings, and how to undo it."""

from rlfocal.new_model.adding import add_model
from rlfocal.new_model.page import Newcomer
from rlfocal.new_model.removing import Removed, remove_model

__all__ = ["Newcomer", "Removed", "add_model", "remove_model"]
