"""Whether models still answer as they did: two snapshots of the warehouse, compared and judged."""

from rlfocal.drift.comparing import Drift as Drift
from rlfocal.drift.comparing import Logprobs as Logprobs
from rlfocal.drift.comparing import Moved as Moved
from rlfocal.drift.comparing import Texts as Texts
from rlfocal.drift.comparing import before_last_extraction as before_last_extraction
from rlfocal.drift.comparing import drift_between as drift_between
from rlfocal.drift.comparing import drift_since as drift_since
from rlfocal.drift.thresholds import FULL as FULL
from rlfocal.drift.thresholds import LOW as LOW
from rlfocal.drift.thresholds import Limits as Limits
from rlfocal.drift.thresholds import Thresholds as Thresholds
from rlfocal.drift.thresholds import exceeds as exceeds
from rlfocal.drift.wording import as_json as as_json
from rlfocal.drift.wording import markdown as markdown
from rlfocal.drift.wording import sentence as sentence
from rlfocal.drift.wording import sentences as sentences
