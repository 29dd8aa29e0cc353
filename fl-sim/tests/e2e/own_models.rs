//! The examples with a program's own candle-nn models, as whole clients: each trains over TLS, goes on after SIGKILL as if nothing had
//! happened, and exports with its own names.

#[path = "../../../fl-learn/examples/conv_net.rs"]
#[allow(dead_code, unreachable_pub)]
mod conv_net;
#[path = "../../../fl-learn/examples/decoder.rs"]
#[allow(dead_code, unreachable_pub)]
mod decoder;

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

use fl_compress::weights::Weights;
use fl_learn::Registry;
use fl_learn::nn::{self, Module as _};

use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, done, wait_for};

/// Which example a child process is, and its arguments, one a line.
const EXAMPLE: &str = "FL_TEST_EXAMPLE";
const ARGS: &str = "FL_TEST_EXAMPLE_ARGS";

/// Operations one after another, each of whose way back calls itself: more than a stack of 2 MiB holds, and less than the main
/// thread's 8 MiB.
const DEPTH: usize = 10_000;

/// The `main` of an example.
#[test]
fn as_an_example() {
    let (Ok(example), Ok(args)) = (std::env::var(EXAMPLE), std::env::var(ARGS)) else {
        return;
    };
    let registry = match &*example {
        "conv_net" => conv_net::registry(),
        "decoder" => decoder::registry(),
        _ => Registry::built_in().with("deep", |vb, input, _| {
            let head = nn::linear(input.shape.iter().product(), input.classes, vb.pp("head"))?;
            Ok(Box::new(nn::func(move |x| {
                (0..DEPTH).try_fold(head.forward(&x.flatten_from(1)?)?, |x, _| x.affine(1.0, 1e-6))
            })))
        }),
    };
    let args = std::iter::once("fl-client")
        .chain(args.lines())
        .map(std::ffi::OsString::from)
        .collect::<Vec<_>>();
    // A test's thread has 2 MiB, a program's main thread 8 MiB.
    let main = std::thread::Builder::new().stack_size(8 << 20);
    let main = main.spawn(|| format!("{:?}", fl_learn::run(args, registry))).unwrap();
    let code = main.join().unwrap();
    assert!(code.contains("(0)"), "{code}");
}

fn example(fed: &Fed, name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "own_models::as_an_example", "--nocapture"])
        .env(EXAMPLE, name)
        .env(ARGS, args.join("\n"))
        .env_remove("RUST_LOG")
        .current_dir(fed.path(""));
    command
}

/// Runs four rounds with two clients, of which the first is killed after the second round if `kill`. Returns the model's digest and
/// the accuracy that `evaluate` prints for the export.
fn run(name: &str, learner: &str, data: &str, train: &str, kill: bool) -> (String, String) {
    let fed = Fed::found();
    let text: String = (0..400)
        .map(|at| format!("one and {} make {}\n", at % 7, at % 7 + 1))
        .collect();
    std::fs::write(fed.path("text.txt"), text).unwrap();
    for client in ["c-0", "c-1"] {
        let data = data.replace("CLIENT", &client[2..]);
        fed.issue(client, &format!("[tasks.own]\nlearner = {learner}\ndata = {data}"));
    }
    done(example(
        &fed,
        name,
        &["init", "--config", "c-0/client.toml", "-o", "init.safetensors"],
    ));
    let plan = format!(
        "name = \"own\"\ntask = \"own\"\nrounds = 4\nseed = 3\nmodel.weights = \"init.safetensors\"\n\
         [cohort]\nmin = 2\ntarget = 2\n[train]\nbatch_size = 20\nclip_norm = 1.0\n{train}\n"
    );
    std::fs::write(fed.path("run.toml"), plan).unwrap();
    let (sender, lines) = channel();
    let mut server = Process::start(fed.serve(&["--exit-when-done"]), 0, 1, &sender);
    wait_for(&lines, 0, "serving `own` on");
    let client = |at: usize, life: u32| {
        let config = format!("c-{at}/client.toml");
        Process::start(
            example(&fed, name, &["run", &config, "--exit-when-done"]),
            1 + at,
            life,
            &sender,
        )
    };
    let (mut first, mut second) = (client(0, 1), client(1, 1));
    wait_for(&lines, 0, "round    2  2 updates");
    if kill {
        first.kill();
        first = client(0, 2);
    }
    let end = wait_for(&lines, 0, "done: version 4, digest ");
    assert!([&mut first, &mut second, &mut server].map(|process| process.end().success()) == [true; 3]);
    done(fed.sim(&["server", "export", "fed", "-o", "own.safetensors"]));
    let (own, begun) = (fed.path("own.safetensors"), fed.path("init.safetensors"));
    let names = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        Weights::parse(&bytes)
            .unwrap()
            .layout()
            .tensors()
            .iter()
            .map(|tensor| tensor.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&own), names(&begun));
    let shown = done(example(
        &fed,
        name,
        &["evaluate", "own.safetensors", "--config", "c-1/client.toml"],
    ));
    (end, shown)
}

fn figure(shown: &str, before: &str) -> f64 {
    let (_, rest) = shown.split_once(before).unwrap();
    rest.split([' ', ',', '\n']).next().unwrap().parse().unwrap()
}

#[test]
fn the_convolutional_net_learns_and_outlives_a_kill() {
    let of = |kill| {
        let learner = "{ name = 'conv-net', channels = 4 }";
        let data = "{ builtin = { client = CLIENT, train = 120, test = 60 } }";
        run("conv_net", learner, data, "epochs = 3\nlearning_rate = 0.1", kill)
    };
    let (killed, shown) = of(true);
    assert_eq!(killed, of(false).0);
    assert!(figure(&shown, "accuracy ") > 0.7, "{shown}");
}

#[test]
fn the_decoder_learns_and_outlives_a_kill() {
    let of = |kill| {
        let learner = "{ name = 'decoder', layers = 1, width = 32 }";
        let data = "{ text = { file = '../text.txt', length = 24, test = 0.1, client = CLIENT, clients = 2 } }";
        run(
            "decoder",
            learner,
            data,
            "epochs = 2\nlearning_rate = 0.003\noptimizer = { adamw = {} }",
            kill,
        )
    };
    let (killed, shown) = of(true);
    assert_eq!(killed, of(false).0);
    assert!(figure(&shown, "perplexity ") < 20.0, "{shown}");
}

#[test]
fn what_check_can_train_a_client_can_train_however_deep() {
    let data = "{ builtin = { client = CLIENT, train = 40, test = 20 } }";
    run("deep", "{ name = 'deep' }", data, "learning_rate = 0.1", false);
}
