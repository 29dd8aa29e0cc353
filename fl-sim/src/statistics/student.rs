//! Quantiles of Student's t distribution.

/// The quantile 0.975 for 1 to 30 degrees of freedom.
const TABLE: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
];

/// The same of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// The quantile 0.975: the half width of a two-sided 95 % interval in standard errors. `None` without a degree of
/// freedom.
pub(super) fn t_975(freedom: usize) -> Option<f64> {
    let at = freedom.checked_sub(1)?;
    Some(TABLE.get(at).copied().unwrap_or_else(|| expansion(freedom as f64)))
}

/// The expansion of Cornish and Fisher to the third order; its error is below 0.00001 from 30 degrees of freedom on.
fn expansion(freedom: f64) -> f64 {
    let z = NORMAL;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, want) in [
            (1, 12.7062),
            (2, 4.3027),
            (4, 2.7764),
            (9, 2.2622),
            (29, 2.0452),
            (30, 2.0423),
            (40, 2.0211),
            (60, 2.0003),
            (100, 1.9840),
            (120, 1.9799),
            (1000, 1.9623),
        ] {
            let found = t_975(freedom).unwrap();
            assert!((found - want).abs() < 1e-4, "{freedom}: {found}");
        }
        assert_eq!(t_975(0), None);
    }

    #[test]
    fn the_expansion_meets_the_table_and_quantiles_fall() {
        assert!((expansion(30.0) - TABLE[29]).abs() < 1e-4);
        let all: Vec<f64> = (1..200).filter_map(t_975).collect();
        assert!(all.windows(2).all(|pair| pair[0] > pair[1]));
        assert!(all.iter().all(|t| *t > NORMAL));
    }
}
