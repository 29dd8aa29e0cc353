//! First weights for data of any shape, by the commands that a user would type.

use crate::binary::{fails, folder_with, program};
use crate::support::Certificates;
use crate::trainer::output;

#[test]
fn first_weights_take_their_shape_from_a_tasks_data() {
    let certificates = Certificates::new("fed");
    let dir = folder_with(
        "127.0.0.1:7070",
        &certificates,
        "learner = 'mlp'\ndata = { builtin = { train = 20, test = 10 } }",
    );
    std::fs::write(
        dir.path().join("flowers.csv"),
        "length,width,price\n1,2,3\n2,3,4\n3,4,5\n",
    )
    .unwrap();
    let data = "{ csv = { file = \"flowers.csv\", target = \"price\", test = 0.4 } }";
    let text = std::fs::read_to_string(dir.path().join("client.toml")).unwrap();
    let text = format!("{text}\n[tasks.prices]\nlearner = \"mlp\"\ndata = {data}\n");
    std::fs::write(dir.path().join("client.toml"), text).unwrap();
    let init = |rest: &[&str]| program(dir.path(), &[&["init"], rest].concat());
    let by_task = ["--config", "client.toml", "--task", "prices", "-o", "a.safetensors"];
    assert!(output(init(&by_task)).contains("4 tensors, 801 parameters, seed 42"));
    output(init(&["--learner", "mlp", "--data", data, "-o", "b.safetensors"]));
    output(init(&[
        "--learner",
        "mlp",
        "--input",
        "1x1x2",
        "--numbers",
        "1",
        "-o",
        "c.safetensors",
    ]));
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!(read("a.safetensors"), read("b.safetensors"));
    assert_eq!(read("a.safetensors"), read("c.safetensors"));
    fails(
        init(&["--learner", "mlp", "--data", "{ csv = 3 }", "-o", "x"]),
        2,
        "--data",
    );
    let both = ["--learner", "mlp", "--data", data, "--classes", "3", "-o", "x"];
    fails(init(&both), 2, "--classes");
    let evaluate = [
        "evaluate",
        "--config",
        "client.toml",
        "--task",
        "prices",
        "a.safetensors",
    ];
    let said = output(program(dir.path(), &evaluate));
    assert!(
        said.contains("(1 examples), mae") && said.contains("rmse") && !said.contains("perplexity"),
        "{said}"
    );
    let said = output(program(dir.path(), &["check", "client.toml"]));
    assert!(
        said.contains("1 number to predict") && said.contains("--input 1x1x2 --numbers 1"),
        "{said}"
    );
}
