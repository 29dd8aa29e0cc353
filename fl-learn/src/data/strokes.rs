//! The ten digits as pen strokes, and how strokes become pixels.
//!
//! Uses only sums, products and square roots, whose results are the same on every machine.

/// A point of the unit square, x to the right, y down.
pub(super) type Point = [f32; 2];

/// The strokes of each digit. A stroke of more than two points is rounded at its inner points.
pub(super) const DIGITS: [&[&[Point]]; 10] = [
    &[&[
        [0.5, 0.0],
        [0.15, 0.1],
        [0.1, 0.5],
        [0.15, 0.9],
        [0.5, 1.0],
        [0.85, 0.9],
        [0.9, 0.5],
        [0.85, 0.1],
        [0.5, 0.0],
    ]],
    &[&[[0.3, 0.22], [0.55, 0.0]], &[[0.55, 0.0], [0.55, 1.0]]],
    &[
        &[
            [0.12, 0.25],
            [0.25, 0.0],
            [0.8, 0.0],
            [0.85, 0.35],
            [0.5, 0.65],
            [0.12, 1.0],
        ],
        &[[0.12, 1.0], [0.9, 1.0]],
    ],
    &[
        &[[0.15, 0.1], [0.5, -0.05], [0.9, 0.15], [0.8, 0.45], [0.4, 0.47]],
        &[[0.4, 0.47], [0.9, 0.5], [0.95, 0.9], [0.5, 1.05], [0.1, 0.88]],
    ],
    &[
        &[[0.68, 0.0], [0.68, 1.0]],
        &[[0.68, 0.0], [0.1, 0.65]],
        &[[0.1, 0.65], [0.95, 0.65]],
    ],
    &[
        &[[0.85, 0.0], [0.22, 0.0]],
        &[[0.22, 0.0], [0.17, 0.45]],
        &[
            [0.17, 0.45],
            [0.6, 0.3],
            [0.95, 0.5],
            [0.9, 0.95],
            [0.45, 1.05],
            [0.1, 0.88],
        ],
    ],
    &[&[
        [0.75, 0.0],
        [0.3, 0.15],
        [0.08, 0.6],
        [0.15, 1.0],
        [0.65, 1.05],
        [0.95, 0.8],
        [0.75, 0.45],
        [0.35, 0.48],
        [0.14, 0.72],
    ]],
    &[&[[0.1, 0.0], [0.9, 0.0]], &[[0.9, 0.0], [0.38, 1.0]]],
    &[&[
        [0.5, 0.48],
        [0.12, 0.35],
        [0.2, 0.0],
        [0.8, 0.0],
        [0.88, 0.35],
        [0.5, 0.48],
        [0.08, 0.65],
        [0.15, 1.02],
        [0.85, 1.02],
        [0.92, 0.65],
        [0.5, 0.48],
    ]],
    &[&[
        [0.86, 0.28],
        [0.65, 0.55],
        [0.25, 0.52],
        [0.1, 0.2],
        [0.35, -0.05],
        [0.85, 0.0],
        [0.9, 0.4],
        [0.62, 1.0],
    ]],
];

/// Strokes that some styles add: a foot under the one, a dash through the seven.
pub(super) const FOOT: [Point; 2] = [[0.25, 1.0], [0.85, 1.0]];
/// See [`FOOT`].
pub(super) const DASH: [Point; 2] = [[0.35, 0.5], [0.85, 0.5]];

/// Cuts every inner corner twice (Chaikin 1974), which rounds it.
pub(super) fn rounded(stroke: &[Point]) -> Vec<Point> {
    let mut points = stroke.to_vec();
    if points.len() < 3 {
        return points;
    }
    for _ in 0..2 {
        let first = points[0];
        let last = points[points.len() - 1];
        let cut = points
            .windows(2)
            .flat_map(|pair| [between(pair[0], pair[1], 0.25), between(pair[0], pair[1], 0.75)]);
        points = std::iter::once(first).chain(cut).chain([last]).collect();
    }
    points
}

fn between(a: Point, b: Point, t: f32) -> Point {
    [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])]
}

/// Draws a line of `radius` pixels through `points` on an image of `side * side` pixels, 0 to 1 each, with soft edges.
pub(super) fn ink(image: &mut [f32], side: usize, points: &[Point], radius: f32) {
    for pair in points.windows(2) {
        let reach = radius + 1.0;
        let [columns, rows] = [0, 1].map(|axis| {
            let low = pair[0][axis].min(pair[1][axis]) - reach;
            let high = pair[0][axis].max(pair[1][axis]) + reach;
            (low.max(0.0) as usize).min(side)..(high.max(0.0) as usize + 1).min(side)
        });
        for y in rows {
            for x in columns.clone() {
                let distance = distance([x as f32 + 0.5, y as f32 + 0.5], pair[0], pair[1]);
                let dark = (radius + 0.5 - distance).clamp(0.0, 1.0);
                let pixel = &mut image[y * side + x];
                *pixel = pixel.max(dark);
            }
        }
    }
}

/// Distance of `p` from the segment from `a` to `b`.
fn distance(p: Point, a: Point, b: Point) -> f32 {
    let along = [b[0] - a[0], b[1] - a[1]];
    let to = [p[0] - a[0], p[1] - a[1]];
    let square = along[0] * along[0] + along[1] * along[1];
    let t = if square > 0.0 {
        ((to[0] * along[0] + to[1] * along[1]) / square).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let off = [to[0] - t * along[0], to[1] - t * along[1]];
    (off[0] * off[0] + off[1] * off[1]).sqrt()
}
