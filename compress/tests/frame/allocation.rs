//! The memory of decoding is bounded by the layout, for any numbers that a frame declares.

#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;
use std::sync::Arc;

use fl_compress::*;

use crate::*;

/// Counts the bytes in use per thread, and their peak.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread may free memory after its thread-locals are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: forwards to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count(block.size() as isize);
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        count(-(block.size() as isize));
        unsafe { System.dealloc(at, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak bytes in use during `work`, beyond those in use before.
fn most_held(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    work();
    (MOST.get() - before) as usize
}

/// A layout, and a frame of it whose section begins at byte 34.
fn empty(rows: usize, cols: usize) -> (Arc<Layout>, Vec<u8>) {
    let layout = Arc::new(Layout::new([("weight", vec![rows, cols])]).unwrap());
    let method = Method {
        reduce: top_k(0.5),
        ..Method::default()
    };
    let frame = encode(&layout, &method, &vec![0.0; layout.len()]).frame;
    (layout, frame)
}

#[test]
fn memory_is_bounded_by_the_tensor() {
    const HUGE: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for (rows, cols) in [(1, 4), (4, 1), (10, 30), (300, 300)] {
        let (layout, empty) = empty(rows, cols);
        // Blocks and tables of fixed size, and two vectors of the length of the tensor.
        let most = 400_000 + layout.len() * 8;
        let varints: [&[u8]; 6] = [
            &[1],
            &[100],
            &[0xff, 7],
            &[0xff, 0xff, 3],
            &[0xff, 0xff, 0xff, 0xff, 0x0f],
            HUGE,
        ];
        for tag in 0..=255u8 {
            for first in varints {
                for second in varints {
                    let mut section = vec![tag];
                    if tag & 3 == 3 {
                        section.push(second[0] % 5);
                    }
                    section.extend(first);
                    section.extend(second);
                    for filler in [0, 1, 0x7f] {
                        let section = [&section[..], &[filler; 64]].concat();
                        let frame = reseal([&empty[..34], &section, &[0; 4]].concat());
                        let held = most_held(|| {
                            if let Ok(frame) = Frame::parse(&frame, &layout) {
                                let _ = frame.verify();
                            }
                        });
                        assert!(held < most, "{held} of {most} for {section:?} in {rows} by {cols}");
                    }
                }
            }
        }
    }
}

#[test]
fn frames_decode_in_as_much_memory_as_they_need() {
    let layout = tensors(40_000);
    let values = noise(40_000, 7);
    for method in every_method().into_iter().step_by(3) {
        let frame = encode(&layout, &method, &values).frame;
        let held = most_held(|| drop(Frame::parse(&frame, &layout).unwrap().verify()));
        assert!(held < 400_000 + 40_000 * 8, "{held} {method:?}");
    }
}

#[test]
fn no_declared_size_of_a_state_is_believed() {
    let layout = one_tensor(1000);
    let spec = from_toml("memory = 'error-feedback'\ndefault = { reduce = { low_rank = 2 } }");
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let pending = encoder.encode(&mut noise(1000, 1), UPDATE).unwrap();
    let mut saved = Vec::new();
    encoder.save(Some(&pending), &mut saved);
    for at in 4..saved.len() - 12 {
        for bytes in [[0xff; 8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]] {
            let mut changed = saved.clone();
            changed[at..at + 8].copy_from_slice(&bytes);
            let changed = reseal(changed);
            let held = most_held(|| drop(Encoder::load(Arc::clone(&layout), &spec, &changed)));
            assert!(held < 200_000, "{held} at {at}");
        }
    }
}
