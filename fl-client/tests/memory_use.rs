//! Peak memory of a client beside its learner, in models: what is held, received, encoded and written in a round.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use fl_client::{DetachedClient, Evaluation, Fit, FitPlan, Learner, Tasks};
use fl_compress::{Ack, Digest, Encoder, Frame, FrameHeader, FrameKind, Layout, Spec};
use fl_proto::{Joined, Training, max_frame};

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

/// A learner that has neither weights nor data: its update is made in advance.
struct Ready(Arc<Layout>, Arc<[f32]>);

impl Learner for Ready {
    fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.0)
    }

    fn load(&mut self, _: &[f32]) -> anyhow::Result<()> {
        Ok(())
    }

    fn fit(&mut self, _: &FitPlan) -> anyhow::Result<Fit> {
        Ok(Fit::new(1, 0.0))
    }

    fn weights(&self, _: &mut [f32]) -> anyhow::Result<()> {
        anyhow::bail!("not asked for")
    }

    fn update(&self, _: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
        out.copy_from_slice(&self.1);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        Ok(None)
    }
}

fn update(len: usize) -> Arc<[f32]> {
    let mut state = 1u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..len).map(|_| (unit() - 0.5) / (unit() + 0.05) * 1e-3).collect()
}

fn joined(layout: &Layout, uplink: Spec) -> Joined {
    Joined {
        client: "alpha".parse().unwrap(),
        run: "test-run".parse().unwrap(),
        task: "ready".to_owned(),
        rounds: 9,
        seed: 1,
        layout: layout.clone(),
        aside: Vec::new(),
        base: None,
        serves_base: false,
        training: Training::default(),
        extra: Default::default(),
        uplink,
        max_frame: max_frame(layout.len(), layout.tensors().len()),
        pending: None,
        initial: Digest([0; 32]),
        instance: Digest([1; 32]),
        minor: 0,
        average: None,
        ping_every: fl_proto::DEFAULT_PING_EVERY,
    }
}

/// The frames of a snapshot and of two model updates, and the digests of the models that they make.
fn broadcast(layout: &Arc<Layout>, spec: &Spec, delta: &[f32]) -> Vec<(FrameKind, Bytes, Digest)> {
    let mut model = vec![0.0; layout.len()];
    let mut encoder = Encoder::new(Arc::clone(layout), spec).unwrap();
    let mut frames = Vec::new();
    for version in 0..3 {
        let frame = match version {
            0 => fl_compress::snapshot(layout, &model, 0).unwrap(),
            round => {
                let header = FrameHeader {
                    kind: FrameKind::ModelUpdate,
                    round,
                    seed: 1,
                };
                let pending = encoder.encode(&mut delta.to_vec(), header).unwrap();
                encoder.settle(&pending, Ack::Accepted).unwrap();
                pending.frame
            }
        };
        let parsed = Frame::parse(&frame, layout).unwrap();
        let kind = parsed.header().kind;
        parsed.accumulate(1.0, &mut model).unwrap();
        frames.push((kind, frame.into(), Digest::of_f32(&model)));
    }
    frames
}

/// Peak bytes of a client that joins, fetches a snapshot, and takes part in three rounds.
fn of_client(len: usize, spec: &str) -> usize {
    let layout = Layout::new([
        ("fc0.weight", vec![len / 1000, 500]),
        ("fc1.weight", vec![len / 1000, 500]),
    ]);
    let layout = Arc::new(layout.unwrap());
    let (spec, delta): (Spec, _) = (toml::from_str(spec).unwrap(), update(layout.len()));
    let frames = broadcast(&layout, &spec, &delta);
    let joined = joined(&layout, spec);
    let dir = tempfile::tempdir().unwrap();
    let (peak, ()) = most(|| {
        let tasks = Tasks::new().with_lazy("ready", move || Ok(Box::new(Ready(layout, delta)) as Box<dyn Learner>));
        let mut client = DetachedClient::join(dir.path(), tasks, joined).unwrap();
        for (version, (kind, frame, digest)) in (0..).zip(&frames) {
            client.apply(version, *kind, frame.clone()).unwrap();
            assert!(client.holds(version, (*digest).into()).unwrap());
            let (header, frame) = client.train(version + 1, 1, None, None).unwrap();
            drop(frame);
            client.settle(header.id.digest, Ack::Accepted).unwrap();
        }
    });
    peak
}

const DENSE: &str = "memory = 'none'\ndefault = { reduce = 'keep', quantize = 'exact', code = 'pack' }";
const TOP_K: &str =
    "memory = 'error-feedback'\ndefault = { reduce = { top_k = 0.01 }, quantize = { uniform = 4 }, code = 'rans' }";

/// Prints the peaks for models of `len` values, and compares them with their limits. Held model, update and residual are three
/// models; what exceeds them is the codec's: sections beside their frame (dense), what components of the largest tensor leave (a
/// quarter of a bit), and levels of several bits a value (the default, whose first frames of noise need them).
fn check(len: usize) {
    let specs = [
        ("dense", DENSE, 4.05),
        ("top-k", TOP_K, 3.15),
        ("a quarter of a bit", "budget = '0.25 bits'", 4.0),
        ("the default codec", "", 5.7),
    ];
    for (name, spec, limit) in specs {
        let models = of_client(len, spec) as f64 / (4 * len) as f64;
        println!("{len} values, {name}: {models:.2} models");
        assert!(models <= limit, "{name}: {models:.2} models of {limit}");
    }
}

/// A single test beside an ignored one, because the counters are global to the process.
#[test]
fn a_client_holds_model_update_and_residual_and_little_else() {
    check(400_000);
}

#[test]
#[ignore = "ten million values"]
fn a_client_of_a_large_model_does_too() {
    check(10_000_000);
}
