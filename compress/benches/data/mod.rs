//! Deterministic test data.

/// Ten million values: eight thousand rows (neurons) of 1250 values.
pub(crate) const LEN: usize = 10_000_000;
pub(crate) const COLS: usize = 1250;

/// Uniform numbers in [0, 1) from a linear congruential generator.
pub(crate) fn units() -> impl FnMut() -> f32 {
    let mut state = 1u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0
    }
}

/// Heavy-tailed values in four layers of different scale.
pub(crate) fn heavy() -> Vec<f32> {
    let mut unit = units();
    (0..LEN)
        .map(|i| (unit() - 0.5) / (unit() + 0.05) * (1 << (i * 4 / LEN)) as f32 * 1e-3)
        .collect()
}

/// Independent Laplacian values.
pub(crate) fn laplace() -> Vec<f32> {
    let mut unit = units();
    (0..LEN)
        .map(|_| {
            let u = unit() - 0.5;
            -(1.0 - 2.0 * u.abs() + 1e-7).ln() * u.signum() * 1e-3
        })
        .collect()
}

/// Gaussian values with log-normal row and column scales, as in updates of dense layers.
pub(crate) fn matrix() -> Vec<f32> {
    let mut unit = units();
    let mut gauss = || (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f32::consts::TAU * unit()).cos();
    let columns: Vec<f32> = (0..COLS).map(|_| gauss()).collect();
    let mut values = Vec::with_capacity(LEN);
    for _ in 0..LEN / COLS {
        let row = gauss();
        values.extend(columns.iter().map(|column| (row + column).exp() * gauss() * 1e-3));
    }
    values
}
