//! How many of the shared values each tensor gets.

/// `values` dealt out to tensors of these sizes, in proportion to the roots of the sizes, at least one and at most its size for
/// each; `sizes.len() <= values <= sum of sizes`. A small tensor, such as a bias, so keeps nearly all its values.
pub(super) fn allot(values: usize, sizes: &[usize]) -> Vec<usize> {
    // Roots of sizes times 2^16, so that nothing is rounded twice.
    let roots: Vec<u128> = sizes.iter().map(|&size| ((size as u128) << 32).isqrt()).collect();
    let share = |level: u128| -> Vec<usize> {
        sizes
            .iter()
            .zip(&roots)
            .map(|(&size, &root): (&usize, &u128)| ((root * level) >> 32).clamp(1, size as u128) as usize)
            .collect()
    };
    // The largest level that deals out no more than `values`: a tensor's share never falls with the level.
    let mut low = 0u128;
    let mut high = 1u128 << 80;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if share(middle).iter().sum::<usize>() <= values {
            low = middle
        } else {
            high = middle
        }
    }
    let mut dealt = share(low);
    let mut left = values.saturating_sub(dealt.iter().sum());
    for (share, size) in dealt.iter_mut().zip(sizes) {
        let more = left.min(size - *share);
        *share += more;
        left -= more;
    }
    dealt
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_tensor_keeps_its_values_and_a_large_one_shares_them() {
        // Biases and weights of the built-in `mlp`.
        assert_eq!(allot(16_000, &[200, 156_800, 10, 2_000]), [200, 14_188, 10, 1_602]);
        assert_eq!(allot(159_010, &[200, 156_800, 10, 2_000]), [200, 156_800, 10, 2_000]);
        assert_eq!(allot(4, &[200, 156_800, 10, 2_000]), [1, 1, 1, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_value_is_dealt_out_once(
            sizes in prop::collection::vec(1usize..5_000_000, 1..40),
            part in 0.0f64..1.0,
        ) {
            let (least, most) = (sizes.len(), sizes.iter().sum::<usize>());
            let values = least + ((most - least) as f64 * part) as usize;
            let dealt = allot(values, &sizes);
            prop_assert_eq!(dealt.iter().sum::<usize>(), values);
            prop_assert!(dealt.iter().zip(&sizes).all(|(dealt, size)| (1..=*size).contains(dealt)));
        }
    }
}
