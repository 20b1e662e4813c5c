//! Which devices the tasks of a group may use, where control groups of the second version say so: a program of type
//! `BPF_PROG_TYPE_CGROUP_DEVICE` at the group, which the kernel asks at each `open` and `mknod` of a device.
//!
//! Input: rules as the first version writes them (`c 1:3 rwm`, `*` for any number). Output: the program, or the rule
//! that cannot be read. What no rule allows is refused. Must never know: tasks.

use std::io;

/// Devices that every task may use: null, zero, full, random, urandom, tty, ptmx, terminals.
pub(super) const USUAL: [&str; 8] =
    ["c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm", "c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm"];

/// `BPF_DEVCG_DEV_BLOCK` and `BPF_DEVCG_DEV_CHAR` of `linux/bpf.h`.
const BLOCK: i32 = 1;
const CHAR: i32 = 2;
/// `BPF_DEVCG_ACC_*` of `linux/bpf.h`.
const MKNOD: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;

/// One instruction, as the kernel reads it: `struct bpf_insn` of `linux/bpf.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// The destination in the lower half, the source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// What a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    kind: i32,
    /// None: any.
    major: Option<i32>,
    minor: Option<i32>,
    access: i32,
}

fn parse(text: &str) -> Option<Rule> {
    let mut words = text.split(' ');
    let (kind, numbers, access) = (words.next()?, words.next()?, words.next()?);
    let (major, minor) = numbers.split_once(':')?;
    let number = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
    let kind = match kind {
        "b" => BLOCK,
        "c" => CHAR,
        _ => return None,
    };
    let access = access.chars().try_fold(0, |sum, letter| match letter {
        'm' => Some(sum | MKNOD),
        'r' => Some(sum | READ),
        'w' => Some(sum | WRITE),
        _ => None,
    })?;
    words.next().is_none().then_some(Rule { kind, major: number(major)?, minor: number(minor)?, access })
}

// The registers: what is asked for comes behind r1; r0 is the answer.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

// The codes of `linux/bpf_common.h` and `linux/bpf.h`.
const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_IF_ANY_BIT: u8 = 0x45;
const EXIT: u8 = 0x95;

fn load(to: u8, at: i16) -> Instruction {
    Instruction { code: LOAD_WORD, registers: CONTEXT << 4 | to, offset: at, immediate: 0 }
}

fn with(code: u8, register: u8, immediate: i32) -> Instruction {
    Instruction { code, registers: register, offset: 0, immediate }
}

/// The program that allows what one of the rules allows.
///
/// # Errors
/// `InvalidInput` with the rule that cannot be read.
pub(super) fn program<'a>(rules: impl IntoIterator<Item = &'a str>) -> io::Result<Vec<Instruction>> {
    // `struct bpf_cgroup_dev_ctx`: the kind in the lower half of the first word, the access in the upper.
    let mut code = vec![
        load(KIND, 0),
        Instruction { code: MOVE_REGISTER, registers: KIND << 4 | ACCESS, offset: 0, immediate: 0 },
        with(AND, KIND, 0xffff),
        with(SHIFT_RIGHT, ACCESS, 16),
        load(MAJOR, 4),
        load(MINOR, 8),
    ];
    for text in rules {
        let rule = parse(text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("device rule {text:?}: write it as `c 1:3 rwm`"))
        })?;
        let mut tests = vec![
            with(JUMP_UNLESS_EQUAL, KIND, rule.kind),
            with(JUMP_IF_ANY_BIT, ACCESS, !rule.access & (MKNOD | READ | WRITE)),
        ];
        tests.extend(rule.major.map(|major| with(JUMP_UNLESS_EQUAL, MAJOR, major)));
        tests.extend(rule.minor.map(|minor| with(JUMP_UNLESS_EQUAL, MINOR, minor)));
        // Each leads behind the two instructions that allow.
        let end = tests.len() + 2;
        for (n, test) in tests.iter_mut().enumerate() {
            test.offset = i16::try_from(end - n - 1).map_err(io::Error::other)?;
        }
        code.extend(tests);
        code.extend([with(MOVE, ANSWER, 1), with(EXIT, 0, 0)]);
    }
    code.extend([with(MOVE, ANSWER, 0), with(EXIT, 0, 0)]);
    Ok(code)
}

/// What a request says of devices, read as it is when a group is made.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(wanted: &crate::protocol::CgroupSpec) {
    drop(program(wanted.devices.iter().map(String::as_str)));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;

    use super::super::sys;
    use super::*;

    /// Runs a program as the kernel would, instruction by instruction.
    fn run(program: &[Instruction], kind: i32, access: i32, (major, minor): (i32, i32)) -> i64 {
        let context = [kind | access << 16, major, minor];
        let mut registers = [0_i64; 11];
        let mut at = 0;
        for _ in 0..10_000 {
            let Instruction { code, registers: names, offset, immediate } = program[at];
            let (to, from) = (usize::from(names & 15), usize::from(names >> 4));
            at += 1;
            let value = i64::from(immediate);
            let is_jump = match code {
                LOAD_WORD => {
                    registers[to] = i64::from(context[usize::try_from(offset).unwrap() / 4]);
                    false
                }
                MOVE => {
                    registers[to] = value;
                    false
                }
                MOVE_REGISTER => {
                    registers[to] = registers[from];
                    false
                }
                AND => {
                    registers[to] &= value;
                    false
                }
                SHIFT_RIGHT => {
                    registers[to] >>= value;
                    false
                }
                JUMP_UNLESS_EQUAL => registers[to] != value,
                JUMP_IF_ANY_BIT => registers[to] & value != 0,
                EXIT => return registers[0],
                _ => panic!("no such instruction: {code}"),
            };
            if is_jump {
                at += usize::try_from(offset).expect("forward");
            }
        }
        panic!("it does not end")
    }

    /// The slow reading: any rule that names the device and grants all that is asked.
    fn is_allowed(rules: &[&str], kind: i32, access: i32, (major, minor): (i32, i32)) -> bool {
        rules.iter().any(|rule| {
            let words: Vec<&str> = rule.split(' ').collect();
            let letter = if kind == BLOCK { "b" } else { "c" };
            let (wanted_major, wanted_minor) = words[1].split_once(':').expect("two numbers");
            let is = |wanted: &str, number: i32| wanted == "*" || wanted == number.to_string();
            let grants = |bit: i32, letter: char| access & bit == 0 || words[2].contains(letter);
            words[0] == letter
                && is(wanted_major, major)
                && is(wanted_minor, minor)
                && grants(MKNOD, 'm')
                && grants(READ, 'r')
                && grants(WRITE, 'w')
        })
    }

    #[test]
    fn the_program_says_what_the_rules_say() {
        let sets: [&[&str]; 4] =
            [&[], &USUAL, &["c 1:3 r", "c 1:3 m", "b 8:* rw", "c *:5 w"], &["b *:* m", "c 226:128 rw", "b 8:1 rwm"]];
        let mut seen = 0;
        for rules in sets {
            let program = program(rules.iter().copied()).expect("a program");
            for kind in [BLOCK, CHAR] {
                for access in 0..8 {
                    for major in [0, 1, 5, 8, 136, 226, 300] {
                        for minor in [0, 1, 3, 5, 9, 128, 1000] {
                            let wanted = is_allowed(rules, kind, access, (major, minor));
                            let found = run(&program, kind, access, (major, minor)) == 1;
                            assert_eq!(found, wanted, "{rules:?}: {kind} {access} {major}:{minor}");
                            seen += usize::from(found);
                        }
                    }
                }
            }
        }
        assert!(seen > 100, "something is allowed: {seen}");
    }

    #[test]
    fn a_rule_that_is_none_is_named() {
        for text in ["", "c", "c 1:3", "x 1:3 r", "c 1 r", "c 1:3 q", "c 1:3 r more", "c a:3 r"] {
            let error = program([text]).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    /// What a shell in a group with a program can do with devices. The group is in the unified tree of this machine,
    /// which needs no controller for it.
    fn tried_by_the_kernel(tree: &Path) {
        let group = tree.join(format!("drover.devices{}", std::process::id()));
        fs::create_dir(&group).expect("a group");
        let rules = USUAL.iter().copied();
        sys::allow_devices(&group, &program(rules).expect("a program")).expect("attached");
        let dir = tempfile::tempdir().expect("a directory");
        let script = format!(
            "cd {}; try() {{ if \"$@\" 2>/dev/null; then echo yes; else echo no; fi; }}; \
             try sh -c 'echo x > /dev/null'; try sh -c 'head -c 1 /dev/zero > /dev/null'; \
             try mknod null c 1 3; try mknod disk b 8 0; try mknod kmsg c 1 11; try mknod mem c 1 1; \
             try head -c 1 /dev/kmsg; try sh -c 'head -c 1 outer'",
            dir.path().display()
        );
        // A disk's node that was there before: it cannot be opened either. 7:0 is the first loop device.
        let loop_device = rustix::fs::makedev(7, 0);
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let outer = dir.path().join("outer");
        rustix::fs::mknodat(rustix::fs::CWD, &outer, rustix::fs::FileType::BlockDevice, mode, loop_device)
            .expect("a node");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("echo $$ > {}/cgroup.procs; {script}", group.display())]).process_group(0);
        let said = shell.output().expect("a shell");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        fs::remove_dir(&group).expect("an empty group");
        let wanted = ["yes", "yes", "yes", "no", "no", "no", "no", "no"];
        assert_eq!(said.lines().filter(|line| ["yes", "no"].contains(line)).collect::<Vec<_>>(), wanted, "{said}");
    }

    #[test]
    fn must_survive_x_001_devices_in_a_group_of_the_second_version() {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let tree = super::super::v2::root(&mounts).expect("a tree of the second version: mount -t cgroup2");
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        tried_by_the_kernel(&tree);
    }
}
