//! Every input that is kept, once.

use crate::{Target, targets};

#[test]
fn what_fuzzing_has_found_stays_mended() {
    for target in targets() {
        let inputs = std::fs::read_dir(target.corpus()).expect("a folder of inputs");
        let read = |input: std::io::Result<std::fs::DirEntry>| {
            let path = input.expect("an entry").path();
            target.read(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        };
        assert!(inputs.map(read).max() > Some(0), "{} has no inputs, or nothing is counted", target.name);
    }
}

#[test]
#[should_panic(expected = "greedy has taken 67108865 bytes of memory for one input")]
fn an_input_that_takes_too_much_memory_is_a_failure() {
    let run = |_: &[u8]| drop(std::hint::black_box(vec![0_u8; (64 << 20) + 1]));
    let taken = Target { name: "greedy", reads: "anything", run, is_json: false }.read(b"x");
    panic!("not noticed: {taken}");
}
