"""`rlfocal.extract`: fills a warehouse from Python, as `rlfocal extract` does."""

from __future__ import annotations

from rlfocal.base.request import with_fields
from rlfocal.extraction.request import ExtractionRequest
from rlfocal.extraction.running.runner import ExtractionReport, extract_pool


@with_fields(ExtractionRequest)
def extract(request: ExtractionRequest) -> ExtractionReport:
    """Asks the models of a pool what the warehouse at `location` lacks, and commits their answers.

    `pool` is a pool's name, its YAML file, or what `load_pool` returns; `location` is what `open_warehouse`
    takes. Models that fail are in the report's `missing`, and the others continue.

    Raises InputError for a wrong name, and InputError or RunError, with nothing written, if the backend or a
    benchmark is not available. Engines run in processes of their own: call it under
    `if __name__ == "__main__":`.
    """
    return run_extraction(request)


def run_extraction(request: ExtractionRequest) -> ExtractionReport:
    """As `extract` does, for a request."""
    return extract_pool(
        request.location,
        request.load_pool(),
        backend=request.backend,
        limit=request.limit,
        datasets=request.datasets,
        jobs=request.jobs,
        replace_documents=request.replace_documents,
        on_progress=request.on_progress,
    )
