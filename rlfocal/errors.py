"""The errors are the warehouse's, which stands below every other room and knows none of them."""

from warehouse.errors import InputError as InputError
from warehouse.errors import RunError as RunError
from warehouse.errors import unknown as unknown
