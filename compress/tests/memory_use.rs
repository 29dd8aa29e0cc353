//! Peak memory of encoding and decoding, beyond input, output and the memory of the encoder.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fl_compress::{Ack, Encoder, Error, Frame, FrameHeader, FrameKind, Layout, Spec};

/// The system allocator, with counters of the bytes in use and of their peak.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[allow(
    unsafe_code,
    reason = "only an allocator sees every allocation; all is handed on to the system's"
)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        let now = NOW.fetch_add(block.size(), Relaxed) + block.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, place: *mut u8, block: Block) {
        NOW.fetch_sub(block.size(), Relaxed);
        // SAFETY: as above; `place` came from `alloc`.
        unsafe { System.dealloc(place, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak bytes in use during `work`, beyond those in use before.
fn most<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = work();
    (MOST.load(Relaxed) - before, result)
}

const ROWS: usize = 2000;
const COLS: usize = 1000;
const LEN: usize = ROWS * COLS;
const BYTES: usize = LEN * 4;
const HEADER: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 1,
    seed: 1,
};

fn update() -> Vec<f32> {
    let mut state = 1u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..LEN).map(|_| (unit() - 0.5) / (unit() + 0.05) * 1e-3).collect()
}

/// A single test, because the counters are global to the process.
#[test]
fn encoding_takes_one_buffer_at_most_and_decoding_a_block() {
    let layout = Layout::new([("whole", vec![ROWS, COLS])]).unwrap();
    let layout = Arc::new(layout);
    let (update, mut acc) = (update(), vec![0.0; LEN]);
    // Limit of the memory of encoding, its frame included, as a multiple of the size of the update.
    for (share, text) in [
        (2.01, "default = {}"),
        (
            0.2,
            "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }",
        ),
        (
            0.2,
            "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'context' }",
        ),
        (1.0, "default = { quantize = { uniform = 4 }, code = 'rans' }"),
        (1.0, "default = { quantize = { uniform = 8 }, code = 'huffman' }"),
        (
            1.2,
            "default = { quantize = { dead_zone = { step = 4 } }, code = 'context' }",
        ),
        (
            1.25,
            "default = { quantize = { dead_zone = { step = 4 } }, code = 'rans' }",
        ),
        (
            1.2,
            "budget = '0.25 bits'\ndefault = { quantize = { dead_zone = { step = 4 } }, code = 'context' }",
        ),
    ] {
        for memory in ["none", "error-feedback"] {
            let spec: Spec = toml::from_str(&format!("memory = '{memory}'\n{text}")).unwrap();
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            let mut delta = update.clone();
            for _ in 0..2 {
                delta.copy_from_slice(&update);
                let (peak, pending) = most(|| encoder.encode(&mut delta, HEADER).unwrap());
                assert!(
                    peak as f64 <= share * BYTES as f64,
                    "{text}, {memory}: encoding takes {peak} of {BYTES}"
                );
                let (peak, ()) = most(|| {
                    let frame = Frame::parse(&pending.frame, &layout).unwrap();
                    frame.verify().unwrap();
                    frame.accumulate(0.5, &mut acc).unwrap();
                });
                assert!(peak < 1 << 20, "{text}, {memory}: decoding takes {peak}");
                encoder.settle(&pending, Ack::Accepted).unwrap();
            }
        }
    }
    for text in [
        "default = { quantize = 'half' }",
        "default = { quantize = 'bf16', code = 'rans' }",
        "default = { quantize = { rotated = 2 } }",
        "default = { quantize = 'ternary', code = 'rice' }",
        "default = { reduce = { random_k = 0.1 } }",
    ] {
        let mut encoder = Encoder::new(Arc::clone(&layout), &toml::from_str(text).unwrap()).unwrap();
        let pending = encoder.encode(&mut update.clone(), HEADER).unwrap();
        let decode = || Frame::parse(&pending.frame, &layout).and_then(|frame| frame.accumulate(0.5, &mut acc));
        let (peak, result) = most(decode);
        assert!(result == Ok(()) && peak < 1 << 20, "{text}: decoding takes {peak}");
    }
    decoding_into_a_file_takes_one_tensor(&update);
}

/// `fl-compress decode` decodes one tensor at a time, so its memory does not depend on the size of the model.
fn decoding_into_a_file_takes_one_tensor(values: &[f32]) {
    const TENSORS: usize = 8;
    let names: Vec<String> = (0..TENSORS).map(|at| format!("layer.{at}")).collect();
    let largest = LEN / TENSORS;
    let small = [("bias.0", 100), ("bias.1", 200)];
    let tensors = names.iter().map(|name| (name.as_str(), vec![largest / COLS, COLS]));
    let layout = Layout::new(tensors.chain(small.map(|(name, len)| (name, vec![len])))).expect("a layout");
    let layout = Arc::new(layout);
    for text in [
        "default = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }",
        "default = { quantize = { uniform = 4 } }\nsmall = { below = 1000, use = { quantize = 'half' } }",
        "default = {}",
    ] {
        let mut encoder = Encoder::new(Arc::clone(&layout), &toml::from_str(text).expect(text)).expect(text);
        let mut delta = [values, &values[..300]].concat();
        let pending = encoder.encode(&mut delta, HEADER).expect(text);
        let mut whole = vec![0.0; layout.len()];
        let frame = Frame::parse(&pending.frame, &layout).expect(text);
        frame.decode(&mut whole).expect(text);
        let mut seen = 0;
        let (peak, result) = most(|| {
            frame.decode_each::<Error>(|tensor, values| {
                assert_eq!(tensor.offset, seen, "{text}: not in the order of the layout");
                assert_eq!(&whole[seen..][..tensor.len], values, "{text}: {}", tensor.name);
                seen += tensor.len;
                Ok(())
            })
        });
        assert!(result == Ok(()) && seen == layout.len(), "{text}");
        assert!(
            peak < 4 * largest + (1 << 19),
            "{text}: {peak} for tensors of {}",
            4 * largest
        );
    }
}
