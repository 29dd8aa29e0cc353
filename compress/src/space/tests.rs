use proptest::prelude::*;

use super::*;
use crate::digest::Digest;

/// A model with matrices, a convolution, vectors, a buffer and names that sort otherwise with an end.
fn model() -> Arc<Layout> {
    let of = |name: &str, shape: &[usize], role| TensorSpec::new(name, shape, Dtype::F32, role);
    let tensors = [
        of("a", &[30, 7], Role::Trained),
        of("a-b", &[6, 40], Role::Trained),
        of("conv.weight", &[8, 3, 2, 2], Role::Trained),
        of("fc.bias", &[9], Role::Trained),
        of("bn.running_mean", &[4], Role::Buffer),
    ];
    Arc::new(Layout::of(tensors).unwrap())
}

fn low_rank(rank: u32, basis: Basis) -> SpaceSpec {
    SpaceSpec::LowRank { rank, basis }
}

fn specs() -> Vec<SpaceSpec> {
    let ranks = [1, 5, 8].into_iter();
    let low = ranks.flat_map(|rank| [low_rank(rank, Basis::Random), low_rank(rank, Basis::Dct)]);
    [4, 40, 555].map(SpaceSpec::shared).into_iter().chain(low).collect()
}

fn blocks(values: u32, blocks: u32) -> SpaceSpec {
    SpaceSpec::Shared { values, blocks }
}

fn space(spec: SpaceSpec, seed: u64) -> Space {
    Space::new(model(), spec, seed).unwrap()
}

/// Numbers in [-1, 1).
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let rng = KeyedRng::new(seed, 0);
    (0..count).map(|at| 2.0 * rng.unit(at) - 1.0).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// `P z` over the trained values.
fn expanded(space: &Space, z: &[f32]) -> Vec<f32> {
    let mut all = z.to_vec();
    all.resize(space.layout().len(), 0.0);
    let mut w = vec![0.0; space.full().len()];
    space.expand(&vec![0.0; space.full().len()], &all, &mut w);
    w.truncate(space.full().trained().len());
    w
}

fn projected(space: &Space, g: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; space.layout().trained().len()];
    space.project(g, 0, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_columns_are_orthonormal(seed in any::<u64>(), values in any::<u64>()) {
        for spec in specs() {
            let space = space(spec, seed);
            let z = numbers(space.layout().trained().len(), values);
            let back = projected(&space, &expanded(&space, &z));
            prop_assert!(z.iter().zip(&back).all(|(z, back)| (z - back).abs() < 2e-5), "{:?}", spec);
        }
    }

    #[test]
    fn projecting_is_the_transpose_of_expanding(seed in any::<u64>(), values in any::<u64>()) {
        for spec in specs() {
            let space = space(spec, seed);
            let z = numbers(space.layout().trained().len(), values);
            let g = numbers(space.full().trained().len(), values ^ 1);
            let (left, right) = (dot(&expanded(&space, &z), &g), dot(&z, &projected(&space, &g)));
            prop_assert!((left - right).abs() < 1e-4, "{:?}: {} {}", spec, left, right);
        }
    }

    #[test]
    fn each_block_has_orthonormal_columns_and_the_blocks_add_up(seed in any::<u64>(), values in any::<u64>()) {
        for spec in [blocks(40, 3), blocks(300, 2), blocks(555, 4)] {
            let space = space(spec, seed);
            let z = numbers(space.layout().len(), values);
            let w0 = numbers(space.full().len(), values ^ 1);
            let (mut whole, mut sum) = (vec![0.0; w0.len()], vec![0.0; w0.len()]);
            space.expand(&w0, &z, &mut whole);
            for block in 0..spec.blocks() as usize {
                let mut own = vec![0.0; space.layout().len()];
                for of in space.trained(block) {
                    own[of.clone()].copy_from_slice(&z[of]);
                }
                let mut back = vec![f32::NAN; space.layout().trained().len()];
                space.project(&expanded(&space, &own), block, &mut back);
                for of in space.trained(block) {
                    prop_assert!(own[of.clone()].iter().zip(&back[of]).all(|(z, back)| (z - back).abs() < 2e-5));
                }
                space.expand_others(&w0, &z, block, &mut sum);
                space.add_block(&z, block, &mut sum);
                prop_assert!(whole.iter().zip(&sum).all(|(w, sum)| (w - sum).abs() < 1e-5), "{:?} {}", spec, block);
            }
        }
    }

    #[test]
    fn as_many_shared_values_as_weights_give_every_model(seed in any::<u64>(), values in any::<u64>()) {
        let space = space(SpaceSpec::shared(555), seed);
        let w = numbers(555, values);
        // A signed permutation: nothing is rounded.
        prop_assert_eq!(expanded(&space, &projected(&space, &w)), w);
    }
}

#[test]
fn groups_differ_by_one_weight_at_most_and_have_signs_of_both_kinds() {
    let space = space(SpaceSpec::shared(40), 3);
    for (tensor, map) in model().tensors().iter().zip(&space.tensors) {
        let z = map.z.len();
        for at in map.z.clone() {
            let mut one = vec![0.0; space.layout().trained().len()];
            one[at] = 1.0;
            let w = expanded(&space, &one);
            let weights = w[map.w.clone()].iter().filter(|w| **w != 0.0).count();
            assert!(
                (tensor.len / z..=tensor.len.div_ceil(z)).contains(&weights),
                "{}",
                tensor.name
            );
            assert!(w.iter().enumerate().all(|(at, w)| *w == 0.0 || map.w.contains(&at)));
        }
    }
    let signs = expanded(&space, &[1.0; 40]);
    let negative = signs.iter().filter(|w| **w < 0.0).count();
    assert!((200..350).contains(&negative), "{negative}");
}

/// Server and clients must agree on these bits on every machine.
#[test]
fn weights_are_these_bits_on_every_machine() {
    let golden = [
        (
            SpaceSpec::shared(40),
            "e8526d13ae9fbf691ef68a1ce368b44929ffc4721b092859093921a39703fe02",
        ),
        (
            blocks(40, 3),
            "f676ff6857fa055ef3a3e85530c9cab3849fb0297f3a4373fe076aed8dbea033",
        ),
        (
            low_rank(5, Basis::Random),
            "fffc8db67e8d082057190cb1eaa3529aa91ef75d34c7843f09836049945cf7a5",
        ),
        (
            low_rank(5, Basis::Dct),
            "81891b3203329d1e635f3593fbb235572ecf9557460ec1db4cce2622c96df9a9",
        ),
    ];
    let found = golden.map(|(spec, _)| {
        let space = space(spec, 42);
        let z = numbers(space.layout().len(), 7);
        let mut w = vec![0.0; space.full().len()];
        space.expand(&numbers(space.full().len(), 8), &z, &mut w);
        (spec, Digest::of_f32(&w).to_string())
    });
    assert_eq!(found.each_ref().map(|(spec, digest)| (*spec, digest.as_str())), golden);
}

#[test]
fn a_space_depends_on_its_seed() {
    for spec in [SpaceSpec::shared(40), low_rank(5, Basis::Random)] {
        assert_eq!(space(spec, 1), space(spec, 1));
        assert_ne!(space(spec, 1), space(spec, 2));
    }
}

/// One block is the space without blocks, and each further one is another: two blocks of the same groups would add no direction.
#[test]
fn rounds_train_the_blocks_in_turn_and_no_two_blocks_are_equal() {
    let (one, three) = (space(SpaceSpec::shared(40), 3), space(blocks(40, 3), 3));
    assert_eq!(
        [1, 2, 3, 4, 0, u64::MAX].map(|round| three.block(round)),
        [0, 1, 2, 0, 0, 2]
    );
    assert_eq!([1, 2, 3].map(|round| one.block(round)), [0; 3]);
    assert_eq!(three.layout().trained().len(), 3 * 40);
    let draws: Vec<Vec<f32>> = (0..3)
        .map(|block| {
            let mut z = vec![0.0; 120];
            three.trained(block).into_iter().for_each(|of| z[of].fill(1.0));
            expanded(&three, &z)
        })
        .collect();
    assert_eq!(draws[0], expanded(&one, &[1.0; 40]));
    assert!(draws[0] != draws[1] && draws[1] != draws[2] && draws[0] != draws[2]);
}

/// A bias that keeps all its values is trained in every round, once, and not in as many copies as there are blocks.
#[test]
fn a_tensor_with_all_its_values_is_trained_in_every_block() {
    let space = space(blocks(300, 4), 3);
    let bias = space
        .layout()
        .tensors()
        .iter()
        .find(|tensor| tensor.name == "fc.bias.z")
        .unwrap();
    assert_eq!(bias.shape, [9]);
    for block in 0..4 {
        assert!(space.trained(block).contains(&(bias.offset..bias.offset + 9)));
    }
}

#[test]
fn tensors_of_z_are_named_and_buffers_travel_as_before() {
    let shapes = |spec| {
        let space = space(spec, 1);
        let tensors = space.layout().tensors().iter();
        tensors
            .map(|t| (t.name.clone(), t.shape.clone(), t.role))
            .collect::<Vec<_>>()
    };
    let of = |name: &str, shape: &[usize]| (name.to_owned(), shape.to_vec(), Role::Trained);
    let buffer = ("bn.running_mean".to_owned(), vec![4], Role::Buffer);
    let low = vec![
        of("a-b.z", &[6, 5]),
        of("a.z", &[5, 7]),
        of("conv.weight.z", &[8, 5]),
        of("fc.bias.z", &[9]),
        buffer.clone(),
    ];
    assert_eq!(shapes(low_rank(5, Basis::Random)), low);
    // A matrix with fewer rows than the rank is trained whole.
    assert_eq!(shapes(low_rank(7, Basis::Dct))[0], of("a-b.z", &[6, 40]));
    let shared = shapes(SpaceSpec::shared(40));
    let values: usize = shared.iter().take(4).map(|(_, shape, _)| shape[0]).sum();
    assert_eq!((shared.len(), values, &shared[4]), (5, 40, &buffer));
    let space = space(SpaceSpec::shared(40), 1);
    let w0 = numbers(559, 1);
    let mut z = space.first(&w0);
    assert!(z[..40].iter().all(|z| *z == 0.0) && z[40..] == w0[555..]);
    let mut w = vec![0.0; 559];
    space.expand(&w0, &z, &mut w);
    assert_eq!(w, w0);
    z[41] = 7.0;
    space.expand(&w0, &z, &mut w);
    assert_eq!((w[556], &w[..555]), (7.0, &w0[..555]));
}

#[test]
fn a_space_that_does_not_suit_the_model_is_refused() {
    let refused = |full: Arc<Layout>, spec| Space::new(full, spec, 1).unwrap_err().to_string();
    for (spec, part) in [
        (SpaceSpec::shared(3), "`train.space.shared` is 3, but must be 4 to 555"),
        (
            SpaceSpec::shared(556),
            "`train.space.shared` is 556, but must be 4 to 555",
        ),
        (SpaceSpec::shared(0), "`space.shared` is 0"),
        (blocks(40, 65), "`space.blocks` is 65, but must be 1 to 64"),
        (
            low_rank(9, Basis::Dct),
            "`train.space.lowrank` is 9, but the largest rank of a trained matrix of the model is 8",
        ),
    ] {
        let error = refused(model(), spec);
        assert!(error.contains(part), "{error}");
    }
    let vector = Arc::new(Layout::new([("b", vec![9])]).unwrap());
    assert!(refused(vector, low_rank(1, Basis::Random)).contains("largest rank of a trained matrix of the model is 1"));
    let half = TensorSpec::new("h", &[9], Dtype::F16, Role::Trained);
    let error = refused(Arc::new(Layout::of([half]).unwrap()), SpaceSpec::shared(3));
    assert!(error.contains("tensor `h` is F16"), "{error}");
    let taken = Layout::new([("b", vec![9]), ("b.z", vec![9])]).unwrap();
    let error = refused(Arc::new(taken), SpaceSpec::shared(3));
    assert!(error.contains("tensor `b.z` has the name"), "{error}");
}
