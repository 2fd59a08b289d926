"""Records that are gone before they were read: an error, or a warning, as failOnDataLoss says."""

from __future__ import annotations

import logging

from forebay.errors import ForebayError
from forebay.spark.source.options import Fetching

log = logging.getLogger(__name__)

SKIP_HINT = "Set failOnDataLoss=false to go on with what is there"


class DataLoss(ForebayError):
    """Records that were to be read are not there any more."""


def data_loss(fetching: Fetching, what: str) -> None:
    """Fail, or go on with a warning, as failOnDataLoss says."""
    if fetching.fail_on_data_loss:
        raise DataLoss(
            f"{what}. The records may have been deleted by retention, or the topic deleted or made anew."
            f" {SKIP_HINT}"
        )
    log.warning("%s; going on, because failOnDataLoss=false", what)
