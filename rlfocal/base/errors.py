"""The errors that all packages raise; the warehouse, the lowest layer, defines them."""

from warehouse.errors import InputError as InputError
from warehouse.errors import RunError as RunError
from warehouse.errors import unknown_name as unknown_name
