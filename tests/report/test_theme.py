"""The colours of charts can be told apart from their ground, and from each other without seeing red or green."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from kvbench.report.theme import DARK, LIGHT, Scheme

# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as it is seen.
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
COMMON = 5
"""Series that a chart often has; of more the colours may be closer, and their points have shapes of their own."""


def linear(colour: str) -> np.ndarray:
    values = np.array([int(part, 16) for part in re.findall("..", colour[1:])]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    high, low = sorted((float(linear(each) @ [0.2126, 0.7152, 0.0722]) + 0.05 for each in (one, other)), reverse=True)
    return high / low


def lab(rgb: np.ndarray) -> np.ndarray:
    """OKLab, times 100, of linear RGB."""
    to_cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    to_cones.append([0.0883024619, 0.2817188376, 0.6299787005])
    to_lab = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
    to_lab.append([0.0259040371, 0.7827717662, -0.8086757660])
    found: np.ndarray = 100 * np.array(to_lab) @ np.cbrt(np.array(to_cones) @ rgb.clip(0, 1))
    return found


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_colours_stand_out_from_the_ground(scheme: Scheme) -> None:
    assert min(contrast(colour, scheme.ground) for colour in scheme.series) >= 3
    assert min(contrast(colour, scheme.ground) for colour in (scheme.text, scheme.muted)) >= 4.5


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_series_are_told_apart_without_seeing_red_or_green(scheme: Scheme, blindness: str) -> None:
    seen = [lab(np.array(BLINDNESS[blindness]) @ linear(colour)) for colour in scheme.series]
    for colours, distance in ((seen[:COMMON], 9), (seen, 6)):
        assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(colours, 2)) >= distance
