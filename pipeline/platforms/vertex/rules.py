"""Warnings before a deployment to Vertex AI."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.rules.rule import Case

# Source: https://cloud.google.com/vertex-ai/docs/general/locations. Google adds regions, so an unknown one is no error.
_PLACES = {
    "africa": "south1",
    "asia": "east1 east2 northeast1 northeast2 northeast3 south1 south2 southeast1 southeast2",
    "australia": "southeast1 southeast2",
    "europe": "central2 north1 north2 southwest1 west1 west12 west2 west3 west4 west6 west8 west9",
    "me": "central1 central2 west1",
    "northamerica": "northeast1 northeast2",
    "southamerica": "east1 west1",
    "us": "central1 east1 east4 east5 east7 south1 west1 west2 west3 west4 west8",
}
REGIONS = frozenset(f"{area}-{place}" for area, places in _PLACES.items() for place in places.split())


def note(case: Case) -> Iterator[str]:
    """Yields warnings before deployment."""
    region = case.deploy.region
    if region and region not in REGIONS:
        near = nearest(region, REGIONS)
        meant = f"did you mean `{near}`?" if near else "see https://cloud.google.com/vertex-ai/docs/general/locations"
        yield f"deploy.region: {region!r} is none of the known regions of Vertex AI: {meant}"
