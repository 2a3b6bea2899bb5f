"""The errors of all packages.

The warehouse, the lowest layer, defines them, because it imports no other package.
"""

from warehouse.errors import InputError as InputError
from warehouse.errors import RunError as RunError
from warehouse.errors import unknown_name as unknown_name
