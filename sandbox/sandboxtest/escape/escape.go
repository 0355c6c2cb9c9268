// Package escape is the escape suite: a table of attempts to escape from a box, as a hostile
// tool would make them. Every driver that isolates must withstand all of them.
//
// A driver's test calls Run with a function that makes its boxes. Each attempt runs a real
// program in the box, which prints what it observed. As a control the same program then runs
// without the protection (on the host, or in separate namespaces) and must succeed, because
// otherwise the attempt would prove nothing. Check compares the results with the table in
// docs/security/escapes.md. Invariant (I-16): no attempt succeeds in a box.
package escape

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Config describes the driver under attack.
type Config struct {
	// New makes a driver with a new data directory, and returns both.
	New func(t *testing.T) (d sandbox.Driver, data string)
	// Spec returns the spec of a box of that name, with directories below the data directory.
	Spec func(t *testing.T, d sandbox.Driver, name string) sandbox.Spec
	// RootTree returns the spec of a box of that name in a directory of root of the host; nil if the driver has no such boxes,
	// or if the process is not root.
	RootTree func(t *testing.T, d sandbox.Driver, name string) sandbox.Spec
	// Probe is the program of testdata/probe, static, executable by others.
	Probe string
	// Outside is a directory of the host that every user may enter, and in which the user of
	// this process may write.
	Outside string
	// Without names groups of attempts that are not made.
	Without []string
}

// canary is a text in everything that a box must not be able to read.
const canary = "escape-canary-"

// attempt is one attempt to escape from a box.
type attempt struct {
	id, does string
	// args are arguments of the probe, sh is a shell script instead; {names} in them are replaced
	// by the rig's values.
	args []string
	sh   string
	// want is a regular expression that the program's whole line in the box must match; user
	// replaces it for a box of an ordinary user, if that prints something else.
	want, user string

	// control is the place where the program runs without the protection.
	control where
	// lacks is what the control may print instead of success if the machine lacks the feature
	// that the text why names.
	lacks, why string
	// free, if set, replaces the arguments in the control; for a script it has one element, the script.
	free []string
	// sees is what the control must print; empty means ok followed by anything.
	sees string

	// limits are the limits of a separate box for this attempt; limit names the limit that the
	// attempt tests. If the box reports that limit as missing, it need not be enforced.
	limits sandbox.Limits
	limit  string

	// do, if set, makes the attempt. Then all fields above, except the texts that describe the attempt, are unused.
	do func(*rig) Row
}

// where is the place in which a control runs.
type where int

const (
	// onHost: on the host as the server's user, without any protection.
	onHost where = iota
	// asRoot: on the host, without any protection, as root of the host.
	asRoot
	// inNamespaces: as root of new user, mount, pid, net, ipc and uts namespaces, with every
	// capability in them, without a seccomp filter and without Landlock.
	inNamespaces
	// inOther: in the box of the other session, which owns the attacked thing.
	inOther
	// asUser: on the host, without any protection, as an ordinary user even if the server's user is root.
	asUser
)

// Run makes the attempts of all groups that the driver supports and returns the results. The test fails if an attempt
// succeeds or prints something unexpected, or if a control fails.
func Run(t *testing.T, cfg Config) []Row {
	t.Helper()
	r := newRig(t, cfg)
	var rows []Row
	for _, g := range groups() {
		_, shares := r.driver.(sandbox.Sharer)
		if slices.Contains(cfg.Without, g.name) || g.name == Siblings && !shares || g.name == RootTrees && cfg.RootTree == nil {
			continue
		}
		for _, a := range g.attempts {
			t.Run(a.id, func(t *testing.T) {
				r := *r
				r.T = t
				row := r.try(a)
				if strings.HasPrefix(a.id, "res-") && !r.unharmed() {
					row.Verdict = Escaped
				}
				row.ID, row.Group, row.Attempt = a.id, g.name, a.does
				rows = append(rows, row)
			})
		}
	}
	return rows
}

// Controls runs the controls that need root, after a Run without root that made the attempts and
// left these controls out.
func Controls(t *testing.T, cfg Config, rows []Row) {
	t.Helper()
	r := &rig{T: t, cfg: cfg, names: map[string]string{}, knocks: &atomic.Int64{}, data: filepath.Join(cfg.Outside, "data")}
	r.hostFiles()
	at := map[string]*Row{}
	for i := range rows {
		at[rows[i].ID] = &rows[i]
	}
	for _, g := range groups() {
		for _, a := range g.attempts {
			if row := at[a.id]; row != nil && row.Control == needsRoot {
				row.Control = "as root: " + r.without(a)
			}
		}
	}
}

// FileOperations is the name of the group of attempts by file operations and links.
const FileOperations = "file operations and links"

// PathRules is the name of the group of attempts to get around path rules.
const PathRules = "path rules"

type group struct {
	name     string
	attempts []attempt
}

func groups() []group {
	return []group{
		{"files and processes of others", otherAttempts()},
		{"secrets of the host", hostAttempts()},
		{"network", netAttempts()},
		{"mounts and roots", mountAttempts()},
		{"the kernel", kernelAttempts()},
		{"the kernel: calls that no list names", callAttempts()},
		{"rights", rightAttempts()},
		{"boxd", boxdAttempts()},
		{"writing elsewhere", writeAttempts()},
		{FileOperations, linkAttempts()},
		{PathRules, wallAttempts()},
		{Siblings, siblingAttempts()},
		{RootTrees, rootAttempts()},
		{"resources", resourceAttempts()},
		{"races", raceAttempts()},
	}
}

// try makes one attempt in the box, and runs its control without the protection.
func (r *rig) try(a attempt) Row {
	r.Helper()
	if a.do != nil {
		return a.do(r)
	}
	if a.limits != (sandbox.Limits{}) {
		r = r.limited(a)
	}
	row := Row{Saw: r.inBox(a), Verdict: Held}
	want := a.want
	if a.user != "" && os.Geteuid() != 0 {
		want = a.user
	}
	// Without Landlock another protection may stop the attempt, with another error.
	stands := a.limit == "landlock" && matches(want, row.Saw)
	if a.limit != "" && r.missing(a.limit) && !stands {
		row.Verdict = NotEnforced
	} else if !matches(want, row.Saw) || strings.Contains(row.Saw, canary) {
		row.Verdict = Escaped
		r.Errorf("the attempt in the box printed %q, not %q", row.Saw, want)
	}
	row.Saw = r.brief(row.Saw)
	row.Control = r.without(a)
	r.standing()
	return row
}

func matches(want, saw string) bool {
	return regexp.MustCompile("^(?:" + want + ")$").MatchString(saw)
}

// inBox runs the attempt as a tool.
func (r *rig) inBox(a attempt) string {
	r.Helper()
	req := wire.ExecRequest{Shell: r.fill(a.sh), TimeoutMS: 20_000, Merge: true}
	if a.sh == "" {
		req = wire.ExecRequest{Argv: append([]string{"/workspace/probe"}, r.fillAll(a.args)...), TimeoutMS: 20_000, Merge: true}
	}
	return r.exec(r.box, req)
}

// exec runs a program in a box and returns its output as one line.
func (r *rig) exec(b *sandbox.Box, req wire.ExecRequest) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	out := &lastLine{}
	call := r.call()
	res, err := b.Exec(ctx, call, req, sandbox.ExecOptions{Stdout: out})
	if err != nil {
		r.Fatalf("the attempt could not be made: %v", err)
	}
	b.Release(call.ID)
	if req.Shell != "" {
		return strings.TrimSpace(fmt.Sprintf("exit %d %s", res.Code, out))
	}
	if res.Class != holdfast.ExitOK {
		return strings.TrimSpace(fmt.Sprintf("%s %s", res.Class, out))
	}
	return out.String()
}

func (r *rig) call() sandbox.Call {
	r.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		r.Fatal(err)
	}
	return sandbox.Call{ID: holdfast.CallID(id)}
}

// standing fails the test if the attempt killed or replaced boxd.
func (r *rig) standing() {
	r.Helper()
	select {
	case <-r.box.Done():
		r.Fatal("boxd is gone")
	default:
	}
	if got := r.exec(r.box, wire.ExecRequest{Shell: "echo here"}); got != "exit 0 here" {
		r.Fatalf("the box does not work any more: %s", got)
	}
}

// lastLine is a writer that stores the end of a program's output, as one line.
type lastLine struct{ text string }

func (l *lastLine) Write(b []byte) (int, error) {
	l.text += string(b)
	if len(l.text) > 4096 {
		l.text = l.text[len(l.text)-4096:]
	}
	return len(b), nil
}

func (l *lastLine) String() string {
	return strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, l.text)), " ")
}

// install copies the probe into a box.
func (r *rig) install(b *sandbox.Box) {
	r.Helper()
	program, err := os.ReadFile(r.cfg.Probe)
	if err != nil {
		r.Fatal(err)
	}
	call := r.call()
	if _, err := b.Write(r.Context(), call, wire.WriteRequest{Path: "probe", Mode: 0o755}, program); err != nil {
		r.Fatal(err)
	}
	b.Release(call.ID)
}

// workspace returns the path of a box's workspace on the host.
func workspace(s sandbox.Spec) string {
	if s.Workspace != "" {
		return s.Workspace
	}
	return filepath.Join(s.Dir, "workspace")
}
