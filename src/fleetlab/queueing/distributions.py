"""Service time distributions: moments, tails and transforms in closed form.

A law is said as `exponential:MEAN`, `deterministic:MEAN`, `hyperexponential:MEAN:SCV`, `lognormal:MEAN:SCV`,
`pareto:ALPHA:LOW:HIGH`, `empirical:VALUE:VALUE:…`, or, where no more is known, `moments:MEAN:SCV`. SCV is the squared
coefficient of variation, 1 for the exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fleetlab.core import WorkloadError

Floats = NDArray[np.float64]
STEP = 0.01  # of log x in a sum that stands for an integral: smooth and fading at both ends, it converges fast
FINE = 0.001  # where the integrand turns round many times
PANELS, POINTS = 64, 20  # of Gauss and Legendre's rule, where the law ends abruptly


@runtime_checkable
class Service(Protocol):
    """A law of runtimes of which moments are known."""

    def moment(self, k: int) -> float:
        """The mean of S to the power of k, for k = 1, 2, 3; nan where it is not known."""


@runtime_checkable
class Distribution(Service, Protocol):
    """A law of which everything is known."""

    def transform(self, omega: Floats) -> NDArray[np.complex128]:
        """The mean of exp(-iωS)."""


class Smooth(Distribution, Protocol):
    """A law with a density."""

    def density(self, x: Floats) -> Floats:
        """At x."""

    def above(self, x: Floats) -> Floats:
        """The chance to take longer than x."""

    def below(self, k: int, x: Floats) -> Floats:
        """The integral of t to the power of k, weighted by the density, from 0 to x."""

    def grid(self, step: float = STEP) -> tuple[Floats, Floats]:
        """Points and their widths: a sum over them stands for an integral over all x that occur."""


def scv(service: Service) -> float:
    """The squared coefficient of variation.

    >>> round(scv(lognormal(2.0, 10.0)), 6)
    10.0
    """
    return service.moment(2) / service.moment(1) ** 2 - 1.0


@dataclass(frozen=True, slots=True)
class Moments:
    """A law of which mean and SCV are all that is known."""

    mean: float
    variation: float

    def moment(self, k: int) -> float:
        """The mean of S to the power of k."""
        return {1: self.mean, 2: self.mean**2 * (1.0 + self.variation)}.get(k, math.nan)


@dataclass(frozen=True, slots=True)
class Discrete:
    """One of these values, rising, each with its chance: a constant, or what was observed."""

    values: tuple[float, ...]
    chances: tuple[float, ...]

    def moment(self, k: int) -> float:
        """The mean of S to the power of k."""
        return float(np.dot(np.array(self.chances), np.array(self.values) ** k))

    def transform(self, omega: Floats) -> NDArray[np.complex128]:
        """The mean of exp(-iωS)."""
        return np.asarray(np.exp(-1j * np.outer(omega, self.values)) @ np.array(self.chances))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Exponential with one of these means, each with its chance."""

    means: tuple[float, ...]
    chances: tuple[float, ...]

    def moment(self, k: int) -> float:
        """The mean of S to the power of k."""
        return math.factorial(k) * sum(p * m**k for m, p in zip(self.means, self.chances, strict=True))

    def transform(self, omega: Floats) -> NDArray[np.complex128]:
        """The mean of exp(-iωS)."""
        return np.asarray((1.0 / (1.0 + 1j * np.outer(omega, self.means))) @ np.array(self.chances))

    def density(self, x: Floats) -> Floats:
        """At x."""
        return self._sum(lambda m: np.exp(-x / m) / m)

    def above(self, x: Floats) -> Floats:
        """The chance to take longer than x."""
        return self._sum(lambda m: np.exp(-x / m))

    def below(self, k: int, x: Floats) -> Floats:
        """The integral of t to the power of k from 0 to x: an incomplete gamma function of a whole number."""

        def part(m: float) -> Floats:
            z = x / m
            tail = sum(z**j / math.factorial(j) for j in range(k + 1)) * np.exp(-z)
            return np.asarray(math.factorial(k) * m**k * (1.0 - tail))

        return self._sum(part)

    def grid(self, step: float = STEP) -> tuple[Floats, Floats]:
        """Evenly in log x."""
        return _logarithmic(math.log(min(self.means)) - 40.0, math.log(max(self.means)) + 4.5, step)

    def _sum(self, part: Callable[[float], Floats]) -> Floats:
        return np.asarray(sum(p * part(m) for m, p in zip(self.means, self.chances, strict=True)))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp of a normal variable with this middle and width."""

    middle: float
    width: float

    def moment(self, k: int) -> float:
        """The mean of S to the power of k."""
        return math.exp(k * self.middle + (k * self.width) ** 2 / 2)

    def transform(self, omega: Floats) -> NDArray[np.complex128]:
        """The mean of exp(-iωS)."""
        return _transform(self, omega)

    def density(self, x: Floats) -> Floats:
        """At x."""
        z = self._z(x)
        return np.asarray(np.exp(-z * z / 2) / (x * self.width * math.sqrt(2 * math.pi)))

    def above(self, x: Floats) -> Floats:
        """The chance to take longer than x."""
        return normal(-self._z(x))

    def below(self, k: int, x: Floats) -> Floats:
        """The integral of t to the power of k from 0 to x."""
        return self.moment(k) * normal(self._z(x) - k * self.width)

    def grid(self, step: float = STEP) -> tuple[Floats, Floats]:
        """Evenly in log x, as far as a second moment reaches."""
        low, high = self.middle - 12 * self.width, self.middle + (12 + 2 * self.width) * self.width
        return _logarithmic(low, high, step * self.width)

    def _z(self, x: Floats) -> Floats:
        return np.asarray((np.log(x) - self.middle) / self.width)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Pareto's law between two bounds: P(S > x) falls as x to the power of -alpha."""

    alpha: float
    low: float
    high: float

    def moment(self, k: int) -> float:
        """The mean of S to the power of k."""
        return float(self.below(k, np.array([self.high]))[0])

    def transform(self, omega: Floats) -> NDArray[np.complex128]:
        """The mean of exp(-iωS)."""
        return _transform(self, omega)

    def density(self, x: Floats) -> Floats:
        """At x."""
        return np.asarray(self._scale * x ** (-self.alpha - 1))

    def above(self, x: Floats) -> Floats:
        """The chance to take longer than x."""
        return np.asarray(1.0 - self.below(0, x))

    def below(self, k: int, x: Floats) -> Floats:
        """The integral of t to the power of k from 0 to x."""
        x = np.clip(x, self.low, self.high)
        if k == self.alpha:
            return np.asarray(self._scale * np.log(x / self.low))
        return np.asarray(self._scale * (x ** (k - self.alpha) - self.low ** (k - self.alpha)) / (k - self.alpha))

    def grid(self, step: float = STEP) -> tuple[Floats, Floats]:
        """Gauss and Legendre's points of panels in log x: the law begins and ends abruptly."""
        z, w = np.polynomial.legendre.leggauss(POINTS)
        panels = PANELS if step == STEP else 16 * PANELS
        edges = np.linspace(math.log(self.low), math.log(self.high), panels + 1)
        half = np.diff(edges)[:, None] / 2
        x = np.exp(edges[:-1, None] + half * (z + 1)).ravel()
        return x, x * (half * w).ravel()

    @property
    def _scale(self) -> float:
        return float(self.alpha * self.low**self.alpha / (1.0 - (self.low / self.high) ** self.alpha))


def _logarithmic(low: float, high: float, step: float) -> tuple[Floats, Floats]:
    x = np.exp(np.arange(low, high, step))
    return x, x * step


def _transform(law: Smooth, omega: Floats) -> NDArray[np.complex128]:
    x, dx = law.grid(FINE)
    weight = law.density(x) * dx
    return np.array([np.sum(weight * np.exp(-1j * w * x)) for w in omega.ravel()]).reshape(omega.shape)


def normal(z: Floats) -> Floats:
    """The normal law's distribution function."""
    return np.array([0.5 * math.erfc(x / -math.sqrt(2.0)) for x in z.tolist()])


# -- how a law is made ----------------------------------------------------------------------------------------------


def exponential(mean: float) -> Mixture:
    """Memoryless, SCV 1."""
    return Mixture((_above_0("mean", mean),), (1.0,))


def deterministic(mean: float) -> Discrete:
    """Always the same, SCV 0."""
    return Discrete((_above_0("mean", mean),), (1.0,))


def hyperexponential(mean: float, scv: float) -> Mixture:
    """Two exponentials that carry half the work each, SCV 1 or more.

    >>> round(hyperexponential(1.0, 10.0).moment(2), 9)
    11.0
    """
    _above_0("mean", mean)
    if not 1 <= scv < math.inf:
        msg = f"a hyperexponential law has an SCV of 1 or more, not: {scv}"
        raise WorkloadError(msg, hint="lognormal:MEAN:SCV takes any above 0; deterministic:MEAN has 0")
    first = (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0))) / 2.0
    return Mixture((mean / (2 * first), mean / (2 * (1 - first))), (first, 1 - first))


def mixture(means: Sequence[float], chances: Sequence[float]) -> Mixture:
    """Exponential with one of these means, each with its chance."""
    parts = [_above_0("mean", m) for m in means], [_above_0("chance", p) for p in chances]
    if len(parts[0]) != len(parts[1]) or not math.isclose(sum(parts[1]), 1.0, rel_tol=1e-9):
        msg = f"a mixture has a chance for each mean, and they sum to 1, not: {list(means)}, {list(chances)}"
        raise WorkloadError(msg, hint="mixture([0.5, 5.5], [0.9, 0.1])")
    return Mixture(tuple(parts[0]), tuple(parts[1]))


def lognormal(mean: float, scv: float) -> Lognormal:
    """The exponential of a normal variable, SCV above 0."""
    width2 = math.log1p(_above_0("SCV", scv))
    return Lognormal(math.log(_above_0("mean", mean)) - width2 / 2, math.sqrt(width2))


def pareto(alpha: float, low: float, high: float) -> Pareto:
    """Pareto's law between `low` and `high`."""
    if not _above_0("low", low) < _above_0("high", high):
        msg = f"a bounded Pareto law ends above its beginning, not from {low} to: {high}"
        raise WorkloadError(msg, hint="pareto:1.1:10:600000")
    return Pareto(_above_0("alpha", alpha), low, high)


def empirical(values: Sequence[float] | Floats) -> Discrete:
    """What was observed, each value as likely as it was seen.

    >>> empirical([3.0, 1.0, 1.0])
    Discrete(values=(1.0, 3.0), chances=(0.6666666666666666, 0.3333333333333333))
    """
    observed = np.asarray(values, dtype=np.float64)
    if not len(observed) or not (np.isfinite(observed) & (observed >= 0)).all() or not observed.any():
        msg = "an empirical law needs values, none of them negative and one above 0"
        raise WorkloadError(msg, hint="empirical:10:20:400")
    distinct, counts = np.unique(observed, return_counts=True)
    return Discrete(tuple(distinct.tolist()), tuple((counts / len(observed)).tolist()))


def moments(mean: float, scv: float) -> Moments:
    """Mean and SCV, where no more is known."""
    if not 0 <= scv < math.inf:
        msg = f"an SCV is 0 or more, not: {scv}"
        raise WorkloadError(msg, hint="0 for constant service times, 1 for exponential ones")
    return Moments(_above_0("mean", mean), scv)


LAWS: dict[str, tuple[Callable[..., Service], str]] = {
    "exponential": (exponential, "MEAN"),
    "deterministic": (deterministic, "MEAN"),
    "hyperexponential": (hyperexponential, "MEAN:SCV"),
    "lognormal": (lognormal, "MEAN:SCV"),
    "pareto": (pareto, "ALPHA:LOW:HIGH"),
    "empirical": (lambda *values: empirical(values), "VALUE:VALUE:…"),
    "moments": (moments, "MEAN:SCV"),
}
KNOWN = ", ".join(f"{name}:{takes}" for name, (_, takes) in LAWS.items())


def law(words: Any) -> Service:  # noqa: ANN401
    """A law by its words, or as it is.

    >>> law("exponential:2")
    Mixture(means=(2.0,), chances=(1.0,))
    """
    if isinstance(words, Service):
        return words
    name, *numbers = str(words).strip().split(":")
    if name not in LAWS:
        raise WorkloadError(f"unknown service time distribution: `{name}`", hint=f"there are {KNOWN}")
    make, takes = LAWS[name]
    try:
        words = [float(n) for n in numbers]
        if "…" not in takes and len(words) != takes.count(":") + 1:
            raise ValueError
    except ValueError:
        msg = f"cannot parse the service time distribution: `{':'.join([name, *numbers])}`"
        raise WorkloadError(msg, hint=f"{name}:{takes}, with numbers") from None
    return make(*words)


def _above_0(what: str, value: float) -> float:
    if not (isinstance(value, int | float) and 0 < value < math.inf):
        msg = f"a service time distribution needs a {what} above 0, not: {value}"
        raise WorkloadError(msg, hint=f"there are {KNOWN}")
    return float(value)
