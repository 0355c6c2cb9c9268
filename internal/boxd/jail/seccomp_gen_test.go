package jail

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

var update = flag.Bool("update", false, "write the generated seccomp programs")

// seccomp_policy_test.go lists which calls pass; this file handles those with inspected
// arguments. Forbidden uses get EPERM unless said otherwise. Arguments of type int are
// compared by their low half only: the kernel ignores the high one, and a filter that
// looked at it could be fooled.

const (
	errnoEPERM           = 1
	errnoENOSYS          = 38
	errnoEPROTONOSUPPORT = 93
	errnoESOCKTNOSUPPORT = 94

	specialBits = 0o6000
	newNS       = 0x7E020000
	oCreat      = 0x40
	oTmpfile    = 0x400000
	charOrBlock = 0x2000 // set in S_IFCHR and S_IFBLK, in no other type mknod takes
)

type generator struct {
	seccomp.Program
	names map[string]int
}

func deny(errno uint32) seccomp.Action { return seccomp.ActionErrno | seccomp.Action(errno) }

// anyBit denies when the low half of an argument has one of the bits, else allows.
func (g *generator) anyBit(arg, bits uint32) func() {
	return func() {
		no := g.NewLabel()
		g.LdLo(arg)
		g.JmpIfTrue(bpf.JumpBitsNotSet, bits, no)
		g.Ret(deny(errnoEPERM))
		g.SetLabel(no)
		g.Ret(seccomp.ActionAllow)
	}
}

// oneOf allows when the low half of an argument is one of the values, else denies.
func (g *generator) oneOf(arg uint32, values ...uint32) func() {
	return func() {
		g.LdLo(arg)
		yes := g.NewLabel()
		for _, v := range values {
			g.JmpIfTrue(bpf.JumpEqual, v, yes)
		}
		g.Ret(deny(errnoEPERM))
		g.SetLabel(yes)
		g.Ret(seccomp.ActionAllow)
	}
}

// noneOf denies when the low half of an argument is one of the values, else allows.
func (g *generator) noneOf(arg uint32, values ...uint32) func() {
	return func() {
		g.LdLo(arg)
		hit := g.NewLabel()
		for _, v := range values {
			g.JmpIfTrue(bpf.JumpEqual, v, hit)
		}
		g.Ret(seccomp.ActionAllow)
		g.SetLabel(hit)
		g.Ret(deny(errnoEPERM))
	}
}

// creating denies special mode bits when the flags make a file.
func (g *generator) creating(flags, mode uint32) func() {
	return func() {
		plain := g.NewLabel()
		g.LdLo(flags)
		g.JmpIfTrue(bpf.JumpBitsNotSet, oCreat|oTmpfile, plain)
		g.LdLo(mode)
		g.JmpIfTrue(bpf.JumpBitsNotSet, specialBits, plain)
		g.Ret(deny(errnoEPERM))
		g.SetLabel(plain)
		g.Ret(seccomp.ActionAllow)
	}
}

// socket allows UNIX, INET and INET6 with the protocols TCP, UDP and ICMP, and NETLINK
// for routes. Multipath TCP and UDP-Lite get the answer of a kernel without them.
func (g *generator) socket() {
	const unix, inet, inet6, netlink = 1, 2, 10, 16
	ok, ip, nl, no := g.NewLabel(), g.NewLabel(), g.NewLabel(), g.NewLabel()
	g.LdLo(0)
	g.JmpIfTrue(bpf.JumpEqual, unix, ok)
	g.JmpIfTrue(bpf.JumpEqual, inet, ip)
	g.JmpIfTrue(bpf.JumpEqual, inet6, ip)
	g.JmpIfTrue(bpf.JumpEqual, netlink, nl)
	g.Ret(deny(errnoEPERM))
	g.SetLabel(nl)
	g.LdLo(2)
	g.JmpIfTrue(bpf.JumpNotEqual, 0, no)
	g.Ret(seccomp.ActionAllow)
	g.SetLabel(ip)
	// Stream, datagram and raw are 1, 2 and 3: every other type has further bits.
	stream := g.NewLabel()
	g.LdLo(1)
	g.JmpIfTrue(bpf.JumpBitsNotSet, 0xc, stream)
	g.Ret(deny(errnoESOCKTNOSUPPORT))
	g.SetLabel(stream)
	g.LdLo(2)
	for _, protocol := range []uint32{0, 1, 6, 17, 58} { // whichever fits, ICMP, TCP, UDP, ICMPv6
		g.JmpIfTrue(bpf.JumpEqual, protocol, ok)
	}
	g.Ret(deny(errnoEPROTONOSUPPORT))
	g.SetLabel(ok)
	g.Ret(seccomp.ActionAllow)
	g.SetLabel(no)
	g.Ret(deny(errnoEPERM))
}

// looked holds the calls with inspected arguments. Each body ends in a return.
func (g *generator) looked() map[string]func() {
	calls := map[string]func(){
		"openat":      g.creating(2, 3),
		"open":        g.creating(1, 2),
		"ioctl":       g.noneOf(1, 0x5412, 0x541C), // TIOCSTI, TIOCLINUX
		"clone":       g.anyBit(0, newNS),
		"socket":      g.socket,
		"socketpair":  g.oneOf(0, 1),
		"prlimit64":   g.oneOf(0, 0),
		"personality": g.oneOf(0, 0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff),
		"mknod":       g.anyBit(1, specialBits|charOrBlock),
		"mknodat":     g.anyBit(2, specialBits|charOrBlock),
	}
	for name, mode := range map[string]uint32{
		"mkdir": 1, "mkdirat": 2, "creat": 1, "chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2,
	} {
		calls[name] = g.anyBit(mode, specialBits)
	}
	return calls
}

// often lists calls with inspected arguments that are so frequent that they come before
// all others. Calls that always pass need no such place: the kernel caches their
// verdict.
var often = []string{"openat", "ioctl"}

// segment is the verdict on all calls from a number up to the next segment.
type segment struct {
	from uint32
	// verdict distinguishes segments.
	verdict string
	emit    func() // ends in a return
}

// youngest is above every number that a list names.
const youngest = 1024

// segments are the verdicts on all numbers, in order.
func (g *generator) segments(clone3, openat2 bool) ([]segment, error) {
	pass := segment{verdict: "allow", emit: func() { g.Ret(seccomp.ActionAllow) }}
	refuse := segment{verdict: "EPERM", emit: func() { g.Ret(deny(errnoEPERM)) }}
	none := segment{verdict: "ENOSYS", emit: func() { g.Ret(deny(errnoENOSYS)) }}
	calls := map[uint32]segment{}
	var errs []error
	put := func(s segment, names ...string) {
		for _, name := range names {
			nr, ok := g.names[name]
			if !ok {
				continue
			}
			if have, twice := calls[uint32(nr)]; twice {
				errs = append(errs, fmt.Errorf("%s is %s and %s", name, have.verdict, s.verdict))
			}
			if nr >= youngest {
				errs = append(errs, fmt.Errorf("%s is %d", name, nr))
			}
			calls[uint32(nr)] = s
		}
	}
	put(pass, allowed...)
	put(refuse, refused...)
	for name, emit := range g.looked() {
		put(segment{verdict: name, emit: emit}, name)
	}
	put(none, absent...)
	for name, passes := range map[string]bool{"clone3": clone3, "openat2": openat2} {
		if passes {
			put(pass, name)
		} else {
			put(none, name)
		}
	}
	var out []segment
	for nr := range uint32(youngest + 1) {
		s, ok := calls[nr]
		if !ok {
			s = none
		}
		if s.from = nr; len(out) == 0 || out[len(out)-1].verdict != s.verdict {
			out = append(out, s)
		}
	}
	return out, errors.Join(errs...)
}

// search emits the verdicts as a tree, so that no call is compared with all numbers.
func (g *generator) search(list []segment) {
	if len(list) == 1 {
		list[0].emit()
		return
	}
	half := len(list) / 2
	upper := g.NewLabel()
	g.JmpIfTrue(bpf.JumpGreaterOrEqual, list[half].from, upper)
	g.search(list[:half])
	g.SetLabel(upper)
	g.search(list[half:])
}

// program assembles the policy for an architecture. The library's own Policy is not
// used: it lets calls of a foreign architecture pass and compares all 64 bits.
//
// clone3 and openat2 say which of these two calls are allowed. Their flags lie in
// memory, where a filter cannot see them: only threads that run boxd's own code may use
// openat2.
func program(info *arch.Info, clone3, openat2 bool) ([]bpf.RawInstruction, error) {
	g := &generator{Program: seccomp.NewProgram(), names: map[string]int{}}
	for name, nr := range newCalls {
		g.names[name] = nr
	}
	for name, nr := range info.SyscallNames {
		if young, ok := newCalls[name]; ok && young != nr {
			return nil, fmt.Errorf("%s is %d in the table, %d here", name, nr, young)
		}
		g.names[name] = nr
	}
	list, err := g.segments(clone3, openat2)
	if err != nil {
		return nil, err
	}
	for _, name := range often {
		next := g.NewLabel()
		g.JmpIfTrue(bpf.JumpNotEqual, uint32(g.names[name]), next)
		g.looked()[name]()
		g.SetLabel(next)
	}
	g.search(list)
	body, err := g.Assemble()
	if err != nil {
		return nil, err
	}
	head := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(deny(errnoENOSYS))},
		bpf.LoadAbsolute{Off: 0, Size: 4},
	}
	if info.ID == arch.X86_64.ID {
		head = append(
			head,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 0x40000000, SkipFalse: 1}, // the x32 ABI
			bpf.RetConstant{Val: uint32(deny(errnoENOSYS))},
		)
	}
	return bpf.Assemble(append(head, body...))
}

// generate returns the two programs of an architecture by file name.
func generate(info *arch.Info, goarch string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, v := range []struct {
		name            string
		clone3, openat2 bool
	}{{"clone3", true, false}, {"files", false, true}} {
		prog, err := program(info, v.clone3, v.openat2)
		if err != nil {
			return nil, err
		}
		var out []byte
		for _, i := range prog {
			out = binary.LittleEndian.AppendUint16(out, i.Op)
			out = append(out, i.Jt, i.Jf)
			out = binary.LittleEndian.AppendUint32(out, i.K)
		}
		files["seccomp/"+v.name+"_"+goarch] = out
	}
	return files, nil
}

// TestSeccompProgramIsGenerated fails when the committed programs are not what
// the policy of this file gives.
func TestSeccompProgramIsGenerated(t *testing.T) {
	for goarch, info := range map[string]*arch.Info{"amd64": arch.X86_64, "arm64": arch.AARCH64} {
		files, err := generate(info, goarch)
		if err != nil {
			t.Fatalf("%s: %v", goarch, err)
		}
		for file, want := range files {
			if *update {
				if err := os.WriteFile(file, want, 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s is not what the policy gives: run go generate ./internal/boxd/jail", file)
			}
		}
	}
}
