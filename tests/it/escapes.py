# What a task tries to get out of its sandbox. Prints how many ways it tried, and each that worked.
# Arguments: the number of a process of the host, a file that only the host has, and the agent's socket.
import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys

host_pid, host_file, agent_socket = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
os.chdir("/local")


def call(number, *args):
    return libc.syscall(number, *args) >= 0


def reads(path):
    with open(path, "rb") as file:
        return len(file.read(1)) == 1


def writes(path, data):
    with open(path, "wb", buffering=0) as file:
        return file.write(data) > 0


def runs(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def opens_node(kind, major, minor):
    path = f"/local/node-{major}-{minor}"
    os.mknod(path, 0o600 | kind, os.makedev(major, minor))
    return reads(path)


def leaves_chroot():
    os.makedirs("/local/inner", exist_ok=True)
    outside = os.open("/", os.O_RDONLY)
    os.chroot("/local/inner")
    os.fchdir(outside)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return os.path.exists(host_file)


def opens_by_handle():
    # The root of the file system below a file that is seen, as inode 2 of most file systems.
    at = os.open("/etc/hostname" if os.path.exists("/etc/hostname") else "/usr", os.O_RDONLY)
    handle = struct.pack("IiQ", 8, 1, 2)
    root = libc.open_by_handle_at(at, ctypes.c_char_p(handle), os.O_RDONLY)
    return root >= 0 and os.path.exists(f"/proc/self/fd/{root}{host_file}")


def gains_by_a_file():
    # A program whose file gives all capabilities to who runs it.
    copy = "/local/gains"
    with open("/bin/cat", "rb") as source, open(copy, "wb") as target:
        target.write(source.read())
    os.chmod(copy, 0o6755)
    before = open("/proc/self/status").read().split("CapEff:\t")[1].split()[0]
    os.setxattr(copy, "security.capability", struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0))
    after = subprocess.run([copy, "/proc/self/status"], capture_output=True, text=True).stdout
    return int(after.split("CapEff:\t")[1].split()[0], 16) & ~int(before, 16) != 0


def connects(path):
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(2)
        to.connect(path)
        return True


def socket_of(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return True


def writes_any(folder, name):
    for path, _, files in os.walk(folder):
        if name in files:
            with open(os.path.join(path, name), "a"):
                return True
    return False


CLONE_NEWUSER, CLONE_NEWNS, MS_REMOUNT, MS_BIND = 0x10000000, 0x00020000, 32, 4096
ATTEMPTS = {
    "read the host's passwords": lambda: reads("/etc/shadow"),
    "read a file of the host": lambda: reads(host_file),
    "read it below the first process": lambda: reads(f"/proc/1/root{host_file}"),
    "read it below a process of the host": lambda: reads(f"/proc/{host_pid}/root{host_file}"),
    "read the environment of a process of the host": lambda: reads(f"/proc/{host_pid}/environ"),
    "signal a process of the host": lambda: os.kill(host_pid, 0) is None,
    "trace a process of the host": lambda: call(101, 16, host_pid, 0, 0),
    "read the memory of a process of the host": lambda: call(310, host_pid, 0, 0, 0, 0, 0) and os.path.exists(f"/proc/{host_pid}"),
    "leave a root that it changed": leaves_chroot,
    "open the host's root by its handle": opens_by_handle,
    "mount a file system": lambda: libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0,
    "mount the processes anew": lambda: libc.mount(b"proc", b"/local", b"proc", 0, None) == 0,
    "make its root writable": lambda: libc.mount(None, b"/", None, MS_REMOUNT | MS_BIND, None) == 0,
    "unmount what hides something": lambda: libc.umount2(b"/proc", 2) == 0,
    "change its root": lambda: call(155, b"/local", b"/local"),
    "make a namespace of users": lambda: libc.unshare(CLONE_NEWUSER) == 0,
    "make a namespace of mounts": lambda: libc.unshare(CLONE_NEWNS) == 0,
    "enter the host's namespaces": lambda: runs("nsenter", "-t", str(host_pid), "-m", "true"),
    "open a disk": lambda: opens_node(0o060000, 254, 0),
    "open another disk": lambda: opens_node(0o060000, 8, 0),
    "open the memory": lambda: opens_node(0o020000, 1, 1),
    "open the kernel's log device": lambda: opens_node(0o020000, 1, 11),
    "read the kernel's memory": lambda: reads("/proc/kcore"),
    "read the kernel's log": lambda: call(103, 3, ctypes.create_string_buffer(64), 64),
    "say what runs when a program crashes": lambda: writes("/proc/sys/kernel/core_pattern", b"|/bin/true"),
    "change the kernel": lambda: writes("/proc/sys/kernel/sysrq", b"1"),
    "press a key of the kernel": lambda: writes("/proc/sysrq-trigger", b"h"),
    "say what runs when a device comes": lambda: writes("/sys/kernel/uevent_helper", b"/bin/true"),
    "say what runs when a control group is empty": lambda: writes_any("/sys/fs/cgroup", "release_agent"),
    "move to another control group": lambda: writes_any("/sys/fs/cgroup", "cgroup.procs"),
    "load a program into the kernel": lambda: call(321, 5, ctypes.create_string_buffer(128), 128) or ctypes.get_errno() not in (1, 38),
    "watch the kernel": lambda: call(298, ctypes.create_string_buffer(struct.pack("II", 1, 128).ljust(128, b"\0")), -1, 0, -1, 0),
    "load a module": lambda: call(175, b"", 0, b"") or ctypes.get_errno() not in (1, 38),
    "set the clock": lambda: call(227, 0, ctypes.create_string_buffer(struct.pack("qq", 1, 0))),
    "change the host's name": lambda: libc.sethostname(b"escaped", 7) == 0,
    "use a swap file": lambda: call(167, b"/local/none", 0) or ctypes.get_errno() not in (1, 38),
    "account for processes": lambda: call(163, b"/local/none") or ctypes.get_errno() not in (1, 38),
    "gain by a program's file": gains_by_a_file,
    "see packets of others": lambda: socket_of(socket.AF_PACKET, socket.SOCK_RAW),
    "talk to the machine's hypervisor": lambda: socket_of(40, socket.SOCK_STREAM),
    "use the kernel's ciphers": lambda: socket_of(38, socket.SOCK_SEQPACKET),
    "ask the agent": lambda: connects(agent_socket),
    "write below /usr": lambda: writes("/usr/here", b"x"),
    "write below /etc": lambda: writes("/etc/here", b"x"),
}

through = []
for name, attempt in ATTEMPTS.items():
    # Each in a process of its own: what one changes is no help to the next.
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            got = attempt()
        except BaseException:
            got = False
        os._exit(0 if got else 1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        through.append(name)
print(f"tried {len(ATTEMPTS)}")
for name in through:
    print(f"through: {name}")
