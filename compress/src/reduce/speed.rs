//! Times of the kernels, beside a copy of the same values:
//! `cargo test -p fl-compress --lib reduce::speed -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::count_sketch::{self, Estimates};
use super::{low_rank, projection, random_k, threshold, top_k};
use crate::layout::Shape;
use crate::rng::Draws;

const LEN: usize = 10_000_000;

fn time<T>(what: &str, mut run: impl FnMut() -> T) {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed().as_secs_f64());
    }
    eprintln!("{what}: {:.2} ms", best * 1e3);
}

#[test]
#[ignore = "a measurement"]
fn of_ten_million_laplacian_values() {
    let draws = Draws::new(9, 0);
    let values: Vec<f32> = (0..LEN)
        .map(|i| (1.0 - draws.unit(i)).ln() * if draws.bits(i) & 1 == 0 { 1e-3 } else { -1e-3 })
        .collect();
    let mut out = vec![0.0f32; LEN];
    time("copy", || out.copy_from_slice(black_box(&values)));
    for share in [0.001, 0.01, 0.05, 0.1, 0.5] {
        let k = (LEN as f64 * share) as usize;
        time(&format!("top-k {share}"), || top_k::top_k(&values, k));
        time(&format!("top-k {share}, two threads"), || {
            top_k::top_k_on(2, &values, k)
        });
        time(&format!("top-k {share} of chunks of 4096"), || {
            top_k::top_k_of_chunks(&values, 4096, |_| (4096.0 * share) as usize)
        });
        time(&format!("sampled threshold {share}"), || {
            threshold::sampled(&values, k, draws)
        });
    }
    time("fixed threshold, 1 %", || threshold::fixed(&values, 4.605e-3));

    let mut places = vec![0; LEN / 100];
    time("random 1 %: places", || {
        random_k::Places::new(draws, LEN).fill(0, &mut places)
    });

    let cols = LEN / 500;
    let table = count_sketch::table(&values, 5, cols, draws);
    time("sketch 5 x 0.2 %: table", || {
        count_sketch::table(&values, 5, cols, draws)
    });
    time("sketch 5 x 0.2 %: estimates", || {
        Estimates::new(&table, 5, cols, draws).fill(0, &mut out)
    });

    let sums = projection::project(&values, 41, draws);
    time("projection 1 %: sums", || projection::project(&values, 41, draws));
    time("projection 1 %: values", || {
        for (index, (sums, out)) in sums.chunks(41).zip(out.chunks_mut(projection::BLOCK)).enumerate() {
            projection::unproject(&sums[..projection::block_sums(out.len(), 41)], index, draws, out);
        }
    });

    let shape = Shape { rows: 2000, cols: 5000 };
    for rank in [1, 4, 16] {
        let factors = low_rank::factors(&values, shape, rank, None, draws);
        time(&format!("rank {rank}: factors"), || {
            low_rank::factors(&values, shape, rank, Some(&factors.q), draws)
        });
        time(&format!("rank {rank}: product"), || {
            for (p, row) in factors.p.chunks(rank).zip(out.chunks_mut(shape.cols)) {
                low_rank::row_product(p, &factors.q, shape.cols, 0, row);
            }
        });
    }
}
