// Package escape is the escape suite: what a hostile tool tries from inside of a
// box, as a table of attempts that every isolating driver must withstand.
//
// A driver's test calls Run with a way to make its boxes. Each attempt is a real
// program in the box and says what it saw; the same program then runs without
// that wall (on the host, or in namespaces of its own) and must succeed there,
// or the attempt proves nothing. Check holds the run against the table of
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

// Config is one driver under attack.
type Config struct {
	// New makes a driver on a new data directory and says where that is.
	New func(t *testing.T) (d sandbox.Driver, data string)
	// Spec is the box of that name, on directories below the data directory.
	Spec func(t *testing.T, d sandbox.Driver, name string) sandbox.Spec
	// Probe is the program of testdata/probe, static, executable by others.
	Probe string
	// Outside is a directory of the host that every user may enter, and the user
	// of this process may write.
	Outside string
	// Without names the groups to leave out.
	Without []string
}

// canary is in everything that must not be seen.
const canary = "escape-canary-"

// attempt is one way out of a box.
type attempt struct {
	id, does string
	// args of the probe, or a shell script; {names} stand for what the rig made.
	args []string
	sh   string
	// want is what the box must see, a regular expression of the whole line; user
	// replaces it where an ordinary user's box sees something else.
	want, user string

	// control is where it runs without the wall.
	control where
	// lacks is what the control may see instead of what it must: the machine has no
	// such thing, why says which.
	lacks, why string
	// free replaces args (or sh, as one element) in the control.
	free []string
	// sees is what the control must see; empty is ok with anything.
	sees string

	// limits are those of a box of its own, and limit the name of the one that this
	// attempt is up against: a box that says it is missing enforces nothing.
	limits sandbox.Limits
	limit  string

	// do replaces all of the above but the words.
	do func(*rig) Row
}

// where a control runs.
type where int

const (
	// onHost: as the server's user, with no wall at all.
	onHost where = iota
	// asRoot: the same, but it takes the host's root.
	asRoot
	// inNamespaces: root of user, mount, pid, net, ipc and uts namespaces of its
	// own, with every capability in them, no filter and no Landlock.
	inNamespaces
	// inOther: in the box of the other session, whose it is.
	inOther
	// asUser: with no wall, but never as root, who needs nothing to become root.
	asUser
)

// Run makes every attempt and returns what came of it. An attempt that succeeds
// or that sees something unexpected fails the test, and so does a control that
// fails.
func Run(t *testing.T, cfg Config) []Row {
	t.Helper()
	r := newRig(t, cfg)
	var rows []Row
	for _, g := range groups() {
		if slices.Contains(cfg.Without, g.name) {
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

// Controls runs what a run without root left: the controls that take it. The
// attempts were made by that run.
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

// PathRules is the name of the group of attempts on the walls of path rules.
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
		{"resources", resourceAttempts()},
		{"races", raceAttempts()},
	}
}

// try makes one attempt, in the box and without the wall.
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
	// Without Landlock another wall may hold instead.
	stands := a.limit == "landlock" && matches(want, row.Saw)
	if a.limit != "" && r.missing(a.limit) && !stands {
		row.Verdict = NotEnforced
	} else if !matches(want, row.Saw) || strings.Contains(row.Saw, canary) {
		row.Verdict = Escaped
		r.Errorf("in the box: saw %q, want %q", row.Saw, want)
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

// exec runs a program in a box and makes one line of what it printed.
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

// standing fails when the attempt ended or replaced boxd.
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

// lastLine keeps the end of what a program prints, on one line.
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

// workspace is a box' workspace on the host.
func workspace(s sandbox.Spec) string {
	if s.Workspace != "" {
		return s.Workspace
	}
	return filepath.Join(s.Dir, "workspace")
}
