"""The errors come from the warehouse, the lowest layer, which imports none of the others."""

from warehouse.errors import InputError as InputError
from warehouse.errors import RunError as RunError
from warehouse.errors import unknown_name as unknown_name
