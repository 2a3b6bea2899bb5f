"""Whether models still answer as they did: two snapshots of the warehouse, compared and judged."""

from rlfocal.upkeep.drift.comparing import Drift as Drift
from rlfocal.upkeep.drift.comparing import Logprobs as Logprobs
from rlfocal.upkeep.drift.comparing import Moved as Moved
from rlfocal.upkeep.drift.comparing import Texts as Texts
from rlfocal.upkeep.drift.comparing import before_last_extraction as before_last_extraction
from rlfocal.upkeep.drift.comparing import drift_between as drift_between
from rlfocal.upkeep.drift.comparing import drift_since as drift_since
from rlfocal.upkeep.drift.thresholds import FULL as FULL
from rlfocal.upkeep.drift.thresholds import LOW as LOW
from rlfocal.upkeep.drift.thresholds import Limits as Limits
from rlfocal.upkeep.drift.thresholds import Thresholds as Thresholds
from rlfocal.upkeep.drift.thresholds import exceeds as exceeds
from rlfocal.upkeep.drift.wording import as_json as as_json
from rlfocal.upkeep.drift.wording import markdown as markdown
from rlfocal.upkeep.drift.wording import sentence as sentence
from rlfocal.upkeep.drift.wording import sentences as sentences
