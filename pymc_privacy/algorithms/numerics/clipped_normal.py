"""The law of one Normal record, clipped and released with noise, in closed form.

With x ~ N(mu, sd²), y = clip(x, l, u) + Laplace(b), K(v) = k exp(-k |v|) / 2 and k = sd / b, in
units of sd,

    p(y) = Phi(l) K(y - l) + Phi(-u) K(y - u) + int_l^u phi(z) K(y - z) dz.

Left of y the integrand is phi(z - k) exp(k² / 2 - k y), a piece of a Normal density; right of y it
is mirrored. Beyond the interval p falls off like K: all is written relative to the nearest point of
the interval, and nothing overflows. Since K' = +-K / b, slopes in mu and sd are made of the same
pieces L and R, left and right of y:

    dp / dmu = (L - R) / b,    dp / dsd = (int_l^y z phi K - int_y^u z phi K) / b.

Under Gaussian noise the piece between the ends is Normal in x: a variance v², a mean c.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.numerics.truncated_normal import (
    fall,
    from_base,
    log_complement,
    log_upper,
    mills,
)

_ROOT_2 = math.sqrt(2.0)
_ROOT_2_PI = math.sqrt(2.0 * math.pi)
_FAR = 11.5  # from here on the series below is right to rounding, up to here no product underflows
_LOG_ROOT_2_PI = math.log(_ROOT_2_PI)
_LEAST, _MOST = 1e-250, 1e250  # other sums may have lost digits, and are made of logarithms
_SERIES = np.cumprod([1.0, *(-(2 * k - 1.0) for k in range(1, 17))])


@compiled
def _mills(z):
    """Return (1 - Phi(z)) / phi(z) for z >= 0, in a tenth of the time of a continued fraction."""
    if z < _FAR:
        return 0.5 * _ROOT_2_PI * math.erfc(z / _ROOT_2) * math.exp(0.5 * z * z)
    total, power = 0.0, 1.0 / (z * z)
    for k in range(_SERIES.size - 1, -1, -1):
        total = total * power + _SERIES[k]
    return total / z


@compiled
def _mass(z):
    """Return Phi(z)."""
    return 0.5 * math.erfc(-z / _ROOT_2)


@compiled
def _tilted(low, high, k):
    """Return int_low^high phi(z) exp(-k (high - z)) dz."""
    near, far = k - high, k - low
    if near > 0:
        # Both ends are below the middle of the piece: Mills' ratios do not underflow.
        falling = math.exp(k * (low - high) - 0.5 * low * low) * _mills(far)
        return (math.exp(-0.5 * high * high) * _mills(near) - falling) / _ROOT_2_PI
    factor = math.exp(0.5 * k * k - k * high)
    if far < 0:
        return factor * (_mass(far) - _mass(near))
    return factor * (1.0 - _mass(near) - _mass(-far))


@compiled
def log_clipped_normal(release, lower, upper, scale, mu, sd):
    """Return log p(release)."""
    low, high = (lower - mu) / sd, (upper - mu) / sd
    y, k = (release - mu) / sd, sd / scale
    nearest = min(max(y, low), high)
    total = _mass(low) * math.exp(k * (low - nearest)) + _mass(-high) * math.exp(
        k * (nearest - high)
    )
    if nearest > low:
        total += _tilted(low, nearest, k)
    if nearest < high:
        total += _tilted(-high, -nearest, k)
    if not total > _LEAST:
        return laplace_slopes(release, lower, upper, scale, mu, sd)[0]
    return math.log(total) - k * abs(y - nearest) - math.log(2.0 * scale)


@compiled
def _log_mass(z):
    """Return log Phi(z)."""
    return log_upper(-z) if z < 0.0 else math.log1p(-0.5 * math.erfc(z / _ROOT_2))


@compiled
def _log_between(low, high):
    """Return log(Phi(high) - Phi(low)), at any distance from zero."""
    if low >= 0.0:
        return log_upper(low) + log_complement(fall(low, high - low))
    if high <= 0.0:
        return log_upper(-high) + log_complement(fall(-high, high - low))
    return math.log(0.5 * (math.erf(high / _ROOT_2) - math.erf(low / _ROOT_2)))


@compiled
def _log_tilted(low, high, k):
    """Return log int_low^high phi(z) exp(-k (high - z)) dz."""
    near, far = k - high, k - low
    if not low < high:
        return -math.inf
    if near >= 0.0:
        # The two squares cancel but for that of the end.
        rest = log_complement(fall(near, high - low)) - 0.5 * high * high
        return rest + math.log(mills(near)) - _LOG_ROOT_2_PI
    if far <= 0.0:
        rest = log_complement(fall(-far, high - low)) - 0.5 * low * low - k * (high - low)
        return rest + math.log(mills(-far)) - _LOG_ROOT_2_PI
    return 0.5 * k * k - k * high + _log_between(near, far)


@compiled
def _laplace_pieces(low, nearest, high, k):
    """Return the logs of all that p is the sum of: below, left, right and above."""
    return (
        _log_mass(low) + k * (low - nearest) if low > -math.inf else -math.inf,
        _log_tilted(low, nearest, k),
        _log_tilted(-high, -nearest, k),
        _log_mass(-high) + k * (nearest - high) if high < math.inf else -math.inf,
    )


@compiled
def _query(lower, upper, scale, mu, sd):
    """Return what releases of equal queries to records of one law share.

    Both ends and k in units of sd; below and above, the masses outside; and of each end its
    height of phi, Mills' ratio and both tails at its distance from the middle of a tilted piece.
    """
    low, high, k = (lower - mu) / sd, (upper - mu) / sd, sd / scale
    return (
        low,
        high,
        k,
        (_mass(low), _mass(-high)),
        _end(k - low, low),
        _end(k + high, high),
    )


@compiled
def _end(far, end):
    return (
        math.exp(-0.5 * end * end) if abs(end) < math.inf else 0.0,
        _mills(far) if 0.0 < far < math.inf else 0.0,
        _mass(far),
        _mass(-far),
    )


@compiled
def _piece(near, end, end_fall, k, height, here):
    """Return int phi(z) exp(-k |here - z|) dz from an end to ``here``, and near = k -+ here."""
    end_height, end_mills, end_mass, end_tail = end
    if near > 0:
        return (height * _mills(near) - end_fall * end_height * end_mills) / _ROOT_2_PI
    factor = math.exp(k * (0.5 * k - here))
    if end_tail > 0.5:
        return factor * (end_mass - _mass(near))
    return factor * (1.0 - _mass(near) - end_tail)


@compiled
def _laplace_masses(z, query):
    """Return what p(z) is the sum of, in units of k K(0): below, left, right and above."""
    low, high, k, (below, above), lower_end, upper_end = query
    fall_low = math.exp(k * (low - z)) if low > -math.inf else 0.0
    fall_high = math.exp(k * (z - high)) if high < math.inf else 0.0
    height = math.exp(-0.5 * z * z)
    left = _piece(k - z, lower_end, fall_low, k, height, z) if z > low else 0.0
    right = _piece(k + z, upper_end, fall_high, k, height, -z) if z < high else 0.0
    # Of the integrals of z phi K by parts, what is not k times those of phi K.
    ends = (fall_low * lower_end[0] + fall_high * upper_end[0] - 2.0 * height) / _ROOT_2_PI
    return below * fall_low, left, right, above * fall_high, ends


@compiled
def _laplace_inside(z, query):
    """Return the log of p(z) in these units and its slopes, of a point between the ends."""
    below, left, right, above, ends = _laplace_masses(z, query)
    total = below + left + right + above
    if not total > _LEAST:
        low, high, k = query[:3]
        return _laplace_far(z, low, high, k)
    k = query[2]
    return math.log(total), (left - right) / total, (k * (left + right) + ends) / total


@compiled
def _laplace_far(z, low, high, k):
    """Return the same where it underflows."""
    a, b, c, d = _laplace_pieces(low, z, high, k)
    log_unit = max(a, b, c, d)
    if not log_unit > -math.inf:
        return -math.inf, 0.0, 0.0
    left, right = math.exp(b - log_unit), math.exp(c - log_unit)
    total = math.exp(a - log_unit) + left + right + math.exp(d - log_unit)
    log_units = log_unit + _LOG_ROOT_2_PI
    ends = -2.0 * math.exp(-0.5 * z * z - log_units)
    if low > -math.inf:
        ends += math.exp(k * (low - z) - 0.5 * low * low - log_units)
    if high < math.inf:
        ends += math.exp(k * (z - high) - 0.5 * high * high - log_units)
    return (
        math.log(total) + log_unit,
        (left - right) / total,
        (k * (left + right) + ends) / total,
    )


@compiled
def laplace_slopes(release, lower, upper, scale, mu, sd):
    """Return log p(release) under Laplace noise, and its derivatives in mu and in sd."""
    if not (0.0 < sd < math.inf and abs(mu) < math.inf):
        return -math.inf, 0.0, 0.0
    query = _query(lower, upper, scale, mu, sd)
    low, high, k = query[:3]
    z = (release - mu) / sd
    nearest = min(max(z, low), high)
    logs, by_mu, by_sd = _laplace_inside(nearest, query)
    return logs - k * abs(z - nearest) - math.log(2.0 * scale), by_mu / scale, by_sd / scale


@compiled
def _gaussian_pieces(release, lower, upper, scale, mu, sd):
    """Return the logs of what p is the sum of, below, inside and above; c and v of the inside."""
    variance = sd * sd + scale * scale
    gain = sd * sd / variance
    c, v = mu + (release - mu) * gain, scale * math.sqrt(gain)
    inside = _log_between((lower - c) / v, (upper - c) / v) - 0.5 * math.log(variance)
    inside -= 0.5 * (release - mu) ** 2 / variance + _LOG_ROOT_2_PI
    unit = math.log(scale) + _LOG_ROOT_2_PI
    below = above = -math.inf
    if lower > -math.inf:
        below = _log_mass((lower - mu) / sd) - 0.5 * ((release - lower) / scale) ** 2 - unit
    if upper < math.inf:
        above = _log_mass((mu - upper) / sd) - 0.5 * ((release - upper) / scale) ** 2 - unit
    return below, inside, above, c, v


@compiled
def _gaussian_query(lower, upper, scale, mu, sd):
    """Return what releases of equal queries to records of one law share.

    Masses outside and the heights of the law at both ends; gain and v of the law inside, and the
    standard deviation of a release of a record that is not clipped.
    """
    low, high = (lower - mu) / sd, (upper - mu) / sd
    root = math.sqrt(sd * sd + scale * scale)
    gain = (sd / root) ** 2
    at_low = math.exp(-0.5 * low * low) if low > -math.inf else 0.0
    at_high = math.exp(-0.5 * high * high) if high < math.inf else 0.0
    unit = sd * _ROOT_2_PI
    return _mass(low), _mass(-high), at_low / unit, at_high / unit, gain, scale * sd / root, root


@compiled
def _gaussian_given(release, lower, upper, scale, mu, sd, query):
    """Return log p(release) and its derivatives, of what releases share."""
    mass_below, mass_above, at_low, at_high, gain, v, root = query
    c = mu + (release - mu) * gain
    off = (release - min(max(release, lower), upper)) / scale
    unit = 0.5 * off * off
    kernel_low = kernel_high = below_c = above_c = 0.0
    if lower > -math.inf:
        kernel_low = math.exp(unit - 0.5 * ((release - lower) / scale) ** 2) / scale
        below_c = (lower - c) * at_low * kernel_low
    if upper < math.inf:
        kernel_high = math.exp(unit - 0.5 * ((release - upper) / scale) ** 2) / scale
        above_c = (upper - c) * at_high * kernel_high
    z_low, z_high = (lower - c) / v, (upper - c) / v
    inside = _mass(-z_low) - _mass(-z_high) if z_low > 0 else _mass(z_high) - _mass(z_low)
    inside *= math.exp(unit - 0.5 * ((release - mu) / root) ** 2) / root
    total = mass_below * kernel_low + inside + mass_above * kernel_high
    if not _LEAST < total < _MOST:
        return _gaussian_far(release, lower, upper, scale, mu, sd)
    # Integrals of x - c and of its square, by parts.
    first = v * v * (at_low * kernel_low - at_high * kernel_high)
    second = v * v * (inside + below_c - above_c)
    rest = (c - mu) * (release - c) * inside + (release - c - (c - mu)) * first - second
    share = 1.0 / (total * scale * scale)
    return (
        math.log(total) - unit - _LOG_ROOT_2_PI,
        share * ((release - c) * inside - first),
        share * rest / sd,
    )


@compiled
def gaussian_slopes(release, lower, upper, scale, mu, sd):
    """Return log p(release) under Gaussian noise, and its derivatives in mu and in sd."""
    if not (0.0 < sd < math.inf and abs(mu) < math.inf):
        return -math.inf, 0.0, 0.0
    query = _gaussian_query(lower, upper, scale, mu, sd)
    return _gaussian_given(release, lower, upper, scale, mu, sd, query)


@compiled
def _gaussian_far(release, lower, upper, scale, mu, sd):
    """Return the same where it underflows."""
    below, inside, above, c, v = _gaussian_pieces(release, lower, upper, scale, mu, sd)
    most = max(below, inside, above)
    if not most > -math.inf:
        return -math.inf, 0.0, 0.0
    part = math.exp(inside - most)
    total = math.exp(below - most) + part + math.exp(above - most)
    if part == 0.0:
        return most + math.log(total), 0.0, 0.0
    # Mean and mean square of x - c between the ends.
    log_mass = _log_between((lower - c) / v, (upper - c) / v) + _LOG_ROOT_2_PI
    mean, square = 0.0, 1.0
    for end, side in ((lower, 1.0), (upper, -1.0)):
        z = (end - c) / v
        if abs(z) < math.inf:
            height = side * math.exp(-0.5 * z * z - log_mass)
            mean, square = mean + height, square + z * height
    mean, square = v * mean, v * v * square
    share = part / (total * scale * scale)
    rest = (c - mu) * (release - c - mean) + (release - c) * mean - square
    return (
        most + math.log(total),
        share * (release - c - mean),
        share * rest / sd,
    )


@compiled
def log_clipped_normal_gaussian(release, lower, upper, scale, mu, sd):
    """Return log p(release) under Gaussian noise."""
    return gaussian_slopes(release, lower, upper, scale, mu, sd)[0]


@compiled
def laplace_slopes_of_all(release, lower, upper, scale, mu, sd):
    """Return log densities of all releases, and their derivatives in mu and in sd."""
    logs, by_mu, by_sd = np.empty(mu.size), np.empty(mu.size), np.empty(mu.size)
    for t in range(mu.size):
        logs[t], by_mu[t], by_sd[t] = laplace_slopes(
            release[t], lower[t], upper[t], scale[t], mu[t], sd[t]
        )
    return logs, by_mu, by_sd


@compiled
def gaussian_slopes_of_all(release, lower, upper, scale, mu, sd):
    """Return the same under Gaussian noise."""
    logs, by_mu, by_sd = np.empty(mu.size), np.empty(mu.size), np.empty(mu.size)
    for t in range(mu.size):
        logs[t], by_mu[t], by_sd[t] = gaussian_slopes(
            release[t], lower[t], upper[t], scale[t], mu[t], sd[t]
        )
    return logs, by_mu, by_sd


@compiled
def laplace_slopes_of_equal(release, lower, upper, scale, mu, sd):
    """Return the same of equal queries to records of one law: all arguments have length 1.

    Releases outside of the interval differ from its ends by what no parameter enters.
    """
    size = release.size
    logs, by_mu, by_sd = np.full(size, -math.inf), np.zeros(size), np.zeros(size)
    m, c, b = mu[0], sd[0], scale[0]
    if not (0.0 < c < math.inf and abs(m) < math.inf):
        return logs, by_mu, by_sd
    query = _query(lower[0], upper[0], b, m, c)
    low, high, k = query[:3]
    first = _laplace_inside(low, query) if low > -math.inf else (0.0, 0.0, 0.0)
    last = _laplace_inside(high, query) if high < math.inf else (0.0, 0.0, 0.0)
    unit = math.log(2.0 * b)
    for t in range(size):
        z = (release[t] - m) / c
        if z <= low:
            found, beyond = first, k * (low - z)
        elif z >= high:
            found, beyond = last, k * (z - high)
        else:
            found, beyond = _laplace_inside(z, query), 0.0
        logs[t] = found[0] - beyond - unit
        by_mu[t], by_sd[t] = found[1] / b, found[2] / b
    return logs, by_mu, by_sd


@compiled
def gaussian_slopes_of_equal(release, lower, upper, scale, mu, sd):
    """Return the same under Gaussian noise."""
    size = release.size
    logs, by_mu, by_sd = np.full(size, -math.inf), np.zeros(size), np.zeros(size)
    low, high, b, m, c = lower[0], upper[0], scale[0], mu[0], sd[0]
    if not (0.0 < c < math.inf and abs(m) < math.inf):
        return logs, by_mu, by_sd
    query = _gaussian_query(low, high, b, m, c)
    for t in range(size):
        logs[t], by_mu[t], by_sd[t] = _gaussian_given(release[t], low, high, b, m, c, query)
    return logs, by_mu, by_sd


@compiled
def _chosen(u, below, left, right, above):
    """Return which of four pieces contains the share u of all."""
    place = u * (below + left + right + above)
    if place < below:
        return 0
    if place < below + left:
        return 1
    if above == 0.0 or place < below + left + right:
        # Rounding may have gone beyond the last piece there is.
        return 2 if right > 0.0 else 1 if left > 0.0 else 0
    return 3


@compiled
def _chosen_by_logs(u, a, b, c, d):
    """Return the same of the logs of the four."""
    most = max(a, b, c, d)
    return _chosen(
        u, math.exp(a - most), math.exp(b - most), math.exp(c - most), math.exp(d - most)
    )


@compiled
def laplace_record(choice, place, release, lower, upper, scale, mu, sd):
    """Return a record given its release under Laplace noise.

    Of a uniform number, by which one of the pieces is chosen, and of one with a standard Laplace
    law, which says where in it.
    """
    return _laplace_record(
        choice, place, release, lower, upper, mu, sd, _query(lower, upper, scale, mu, sd)
    )


@compiled
def _laplace_record(choice, place, release, lower, upper, mu, sd, query):
    low, high, k = query[:3]
    nearest = min(max((release - mu) / sd, low), high)
    below, left, right, above, _ = _laplace_masses(nearest, query)
    if below + left + right + above > _LEAST:
        piece = _chosen(choice, below, left, right, above)
    else:
        piece = _chosen_by_logs(choice, *_laplace_pieces(low, nearest, high, k))
    middle = min(max(release, lower), upper)
    if piece == 0:
        return from_base(place, mu, sd, -math.inf, lower)
    if piece == 1:
        return from_base(place, mu + k * sd, sd, lower, middle)
    if piece == 2:
        return from_base(place, mu - k * sd, sd, middle, upper)
    return from_base(place, mu, sd, upper, math.inf)


@compiled
def gaussian_record(choice, place, release, lower, upper, scale, mu, sd):
    """Return a record given its release under Gaussian noise."""
    below, inside, above, c, v = _gaussian_pieces(release, lower, upper, scale, mu, sd)
    piece = _chosen_by_logs(choice, below, inside, -math.inf, above)
    if piece == 0:
        return from_base(place, mu, sd, -math.inf, lower)
    if piece == 1:
        return from_base(place, c, v, lower, upper)
    return from_base(place, mu, sd, upper, math.inf)


@compiled
def laplace_record_of_all(choice, place, release, lower, upper, scale, mu, sd):
    """Return records given their releases under Laplace noise."""
    out = np.empty(mu.size)
    for t in range(mu.size):
        out[t] = laplace_record(
            choice[t], place[t], release[t], lower[t], upper[t], scale[t], mu[t], sd[t]
        )
    return out


@compiled
def gaussian_record_of_all(choice, place, release, lower, upper, scale, mu, sd):
    """Return the same under Gaussian noise."""
    out = np.empty(mu.size)
    for t in range(mu.size):
        out[t] = gaussian_record(
            choice[t], place[t], release[t], lower[t], upper[t], scale[t], mu[t], sd[t]
        )
    return out


@compiled
def log_binned_normal(lower, upper, gain, total, mu, sd):
    """Return log (1 + gain P(lower < x <= upper)) - total; the ends may be infinite.

    With gain = e^epsilon - 1 and total = log(e^epsilon + k - 1) it is the probability of an answer
    of k-ary randomized response.
    """
    low, high = (lower - mu) / sd, (upper - mu) / sd
    # A difference of two small tails, and not of two numbers near 1.
    inside = _mass(-low) - _mass(-high) if low > 0 else _mass(high) - _mass(low)
    return math.log1p(gain * inside) - total


@compiled
def sum_clipped_normal(out, mu, sd, release, lower, upper, scale):
    """Add the log density of every release, of rows of parameters, to ``out``."""
    for i in range(out.size):
        for t in range(release.size):
            out[i] += log_clipped_normal(
                release[t], lower[t], upper[t], scale[t], mu[i, t], sd[i, t]
            )


@compiled
def sum_clipped_normal_gaussian(out, mu, sd, release, lower, upper, scale):
    """Add the log density of every release under Gaussian noise to ``out``, as above."""
    for i in range(out.size):
        for t in range(release.size):
            out[i] += log_clipped_normal_gaussian(
                release[t], lower[t], upper[t], scale[t], mu[i, t], sd[i, t]
            )


@compiled
def sum_binned_normal(out, mu, sd, lower, upper, gain, total, count):
    """Add the log probability of every answer, so many times, of rows of parameters, to ``out``."""
    for i in range(out.size):
        for t in range(lower.size):
            out[i] += count[t] * log_binned_normal(
                lower[t], upper[t], gain[t], total[t], mu[i, t], sd[i, t]
            )
