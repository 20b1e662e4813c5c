//! Every input that is kept, once.

use crate::targets;

#[test]
fn what_fuzzing_has_found_stays_mended() {
    for target in targets() {
        let inputs = std::fs::read_dir(target.corpus()).expect("a folder of inputs");
        let mut n = 0;
        for input in inputs {
            let path = input.expect("an entry").path();
            (target.run)(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
            n += 1;
        }
        assert!(n > 0, "{} has no inputs", target.name);
    }
}
