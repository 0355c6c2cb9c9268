package escape

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Attacks on limited resources of the machine. An attack succeeds if the server, another box or
// the disk is harmed. Each uses a limited amount, so that its control does no harm.

func resourceAttempts() []attempt {
	return []attempt{
		{id: "res-forks", does: "150 processes in a box for 64", args: []string{"forkbomb", "150"}, want: "EAGAIN within 150", limit: "pids-limit", limits: sandbox.Limits{Pids: 64}},
		{id: "res-memory", does: "200 MB in a box of 64 MiB", args: []string{"gulp", "200000000"}, want: "oom.*", limit: "memory-limit", limits: sandbox.Limits{MemoryBytes: 64 << 20}},
		{id: "res-tmp", does: "16 MiB in a /tmp of 8 MiB", args: []string{"fill", "/tmp/big", "16777216"}, free: []string{"fill", "{outside}/big", "16777216"}, want: "ENOSPC", limits: sandbox.Limits{TmpBytes: 8 << 20}},
		{id: "res-shm", does: "32 MiB in /dev/shm of a box of 64 MiB", args: []string{"fill", "/dev/shm/big", "33554432"}, free: []string{"fill", "{outside}/big", "33554432"}, want: "ENOSPC", limits: sandbox.Limits{MemoryBytes: 64 << 20}},
		{id: "res-files", does: "more open files than the hard limit of a process", args: []string{"files", "9000"}, want: "EMFILE within 9000"},
		{id: "res-terminals", does: "600 terminals, of which the machine has one number for all", args: []string{"ptys", "600"}, want: "ENOSPC within 600"},
		{id: "res-output", does: "50 MB of output, in memory or on disk", do: spew},
		{id: "res-zombies", does: "300 ended processes that nobody buries", args: []string{"orphans", "300"}, want: "failed: none left", control: inNamespaces, sees: "ok 300 left"},
		{id: "res-disk", does: "fill the disk beyond the limit of the box", do: func(r *rig) Row {
			return r.diskAttack(32<<20, []string{"fill", "/workspace/big", "536870912", "2"}, []string{"fill", "/workspace/big", "67108864"})
		}},
		{id: "res-disk-unlinked", does: "the same with files that are removed while they are open", do: func(r *rig) Row {
			return r.diskAttack(32<<20, []string{"unlinked", "open", "/workspace", "536870912", "2", "60000"}, []string{"unlinked", "open", "/workspace", "67108864", "0", "0"})
		}},
		{id: "res-disk-hidden", does: "the same with such files that no process has: they are on their way over a socket", do: func(r *rig) Row {
			return r.diskAttack(32<<20, []string{"unlinked", "sent", "/workspace", "536870912", "2", "60000"}, []string{"unlinked", "sent", "/workspace", "67108864", "0", "0"})
		}},
		{id: "res-disk-reserve", does: "take the host's disk below its reserve in that way, beside a box that grew as well", do: reserveAttack},
		{id: "res-inodes", does: "fill the disk with empty files", do: func(r *rig) Row {
			return r.diskAttack(8<<20, []string{"inodes", "/workspace/many", "30000"}, []string{"inodes", "/workspace/many", "1000"})
		}},
	}
}

// unharmed fails if another session's box does not answer as before, after an attempt on resources
// that both boxes share.
func (r *rig) unharmed() bool {
	r.Helper()
	select {
	case <-r.other.Done():
		r.Error("the other session's box is gone")
		return false
	default:
	}
	if got := r.exec(r.other, wire.ExecRequest{Shell: "echo here > beside && cat beside && rm beside", TimeoutMS: 10_000}); got != "exit 0 here" {
		r.Errorf("the attack harmed the other session's box: its test command printed %q", got)
		return false
	}
	return true
}

// limited returns a copy of the rig whose attacker has a new box, with the limits of the attempt.
func (r *rig) limited(a attempt) *rig {
	r.Helper()
	one := *r
	one.names = map[string]string{}
	for k, v := range r.names {
		one.names[k] = v
	}
	one.spec, one.info, one.box = r.up(a.id, func(s *sandbox.Spec) { s.Limits = a.limits })
	one.install(one.box)
	return &one
}

// missing reports whether the box lists a limit as not enforced.
func (r *rig) missing(limit string) bool {
	for _, m := range append(r.box.Welcome().Missing, r.info.Missing...) {
		if strings.HasPrefix(m, limit+":") {
			return true
		}
	}
	return false
}

// spew prints more output than boxd stores. Whoever attaches afterwards must get only what boxd stored.
func spew(r *rig) Row {
	r.Helper()
	const all, kept = 50 << 20, 1 << 20
	_, _, b := r.up("spew", func(s *sandbox.Spec) { s.SpoolBytes = kept })
	r.install(b)
	call := r.call()
	req := wire.ExecRequest{Argv: []string{"/workspace/probe", "spew", fmt.Sprint(all)}}
	res, err := b.Exec(r.Context(), call, req, sandbox.ExecOptions{})
	if err != nil || res.Class != holdfast.ExitOK {
		r.Fatalf("%+v %v", res, err)
	}
	var n counter
	if _, err := b.Exec(r.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: &n, AttachOnly: true}); err != nil {
		r.Fatal(err)
	}
	row := Row{Verdict: Held, Saw: fmt.Sprintf("%d MiB kept of %d, the rest is a gap", int64(n)>>20, res.StdoutBytes>>20)}
	if int64(n) > kept+64<<10 || res.StdoutDropped+int64(n) != res.StdoutBytes || res.StdoutBytes < all {
		row.Verdict = Escaped
		r.Errorf("boxd stored %d bytes of the output, too many or not the number that the result implies: %+v", n, res)
	}
	path := filepath.Join(r.cfg.Outside, "output")
	if saw := r.host(onHost, nil, fmt.Sprintf("%s spew %d > %s", r.cfg.Probe, all, path)); saw != "exit 0" {
		r.Error(saw)
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() < all {
		r.Errorf("the control failed: the file has not all of the output: %+v, error %v", st, err)
	}
	row.Control = fmt.Sprintf("a plain file: %d MiB", st.Size()>>20)
	if err := os.Remove(path); err != nil {
		r.Error(err)
	}
	return row
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// diskAttack runs an attack in a box of a pool that watches the disk, which stops
// that box, and then lets the session go on. The control is a pool that does not
// watch.
func (r *rig) diskAttack(limit int64, attack, free []string) Row {
	r.Helper()
	dir, _ := r.smallDisk(256 << 20)
	spec := r.on(dir, "disk")
	stops := make(chan holdfast.BoxEnded, 4)
	p := r.pool(stops, &pool.Disk{Every: 10 * time.Millisecond, Limit: limit, Usage: usage(spec), Space: r.space(spec), Hostile: true})
	saw, ended := r.attack(p, spec, attack, stops)
	row := Row{Saw: fmt.Sprintf("%s, %d KiB late", saw, ended.OvershootBytes>>10), Verdict: Held}
	if !strings.HasPrefix(ended.Reason, "disk: ") || ended.Box != spec.Box || ended.OvershootBytes <= 0 {
		row.Verdict = Escaped
		r.Errorf("the pool did not stop the box of the attack because of the disk: the attack printed %q, the box ended with %+v", saw, ended)
	}
	if s := r.measured(spec); s.Free <= 0 || s.FreeFiles <= 0 {
		row.Verdict = Escaped
		r.Errorf("the attack filled the host's disk: %+v", s)
	}
	r.goesOn(p, spec)
	row.Control, _ = r.unwatched(spec, free)
	return row
}

// reserveAttack fills a small disk of the host from a box, until less than the reserve is free. The box
// writes files that have no name and that no process has open. The pool must stop this box. A second
// box wrote a file with a name, and must go on.
func reserveAttack(r *rig) Row {
	r.Helper()
	const size = 128 << 20
	dir, why := r.smallDisk(size)
	if why != "" {
		return Row{Saw: "no disk to fill: " + why, Verdict: NotTried, Control: "see the rows of root"}
	}
	spec, beside := r.on(dir, "disk"), r.on(dir, "beside")
	stops := make(chan holdfast.BoxEnded, 4)
	p := r.pool(stops, &pool.Disk{Every: 10 * time.Millisecond, Reserve: 0.5, Usage: usage(spec, beside), Space: r.space(spec), Hostile: true})
	h, err := p.Acquire(r.Context(), beside, false, nil)
	if err != nil {
		r.Fatal(err)
	}
	defer h.Release()
	r.install(h.Box)
	if got := r.exec(h.Box, wire.ExecRequest{Argv: []string{"/workspace/probe", "fill", "/workspace/big", "8388608"}}); got != "ok 8388608 bytes" {
		r.Fatal(got)
	}
	saw, ended := r.attack(p, spec, []string{"unlinked", "sent", "/workspace", "125829120", "10", "60000"}, stops)
	after := r.measured(spec)
	row := Row{Saw: fmt.Sprintf("%s, %d KiB late, %d MiB of %d free again", saw, ended.OvershootBytes>>10, after.Free>>20, after.Bytes>>20), Verdict: Held}
	if ended.Box != spec.Box || ended.OvershootBytes <= 0 || after.Free < size/2 || len(stops) > 0 {
		row.Verdict = Escaped
		r.Errorf("the pool did not stop only the box of the attack: the attack printed %q, the box ended with %+v, the disk has %+v, and %d more boxes were stopped", saw, ended, after, len(stops))
	}
	if got := r.exec(h.Box, wire.ExecRequest{Shell: "echo here"}); got != "exit 0 here" {
		row.Verdict = Escaped
		r.Errorf("the attack harmed the second box: its test command printed %q", got)
	}
	r.goesOn(p, spec)
	var left pool.DiskSpace
	row.Control, left = r.unwatched(spec, []string{"fill", "/workspace/big", "104857600"})
	if row.Control += fmt.Sprintf(", %d MiB free", left.Free>>20); left.Free >= size/2 {
		r.Errorf("the control failed: the attack left half of the disk free: %+v", left)
	}
	if err := p.Remove(r.Context(), beside.Box); err != nil {
		r.Error(err)
	}
	return row
}

// on returns the spec of the box with that name. If disk is not empty, the box's directory is on that disk.
func (r *rig) on(disk, name string) sandbox.Spec {
	r.Helper()
	spec := r.cfg.Spec(r.T, r.driver, name)
	if disk != "" {
		spec.Dir = filepath.Join(disk, name)
	}
	if err := os.MkdirAll(spec.Dir, 0o700); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := rooted.RemoveAll(spec.Dir); err != nil {
			r.Error(err)
		}
	})
	return spec
}

// smallDisk mounts a disk of size bytes for one attempt. why is not empty if this user may not mount a disk, and
// says so.
func (r *rig) smallDisk(size int64) (dir, why string) {
	r.Helper()
	dir = filepath.Join(r.cfg.Outside, "disk")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.Fatal(err)
	}
	unmount, err := mountSmall(dir, size)
	if err != nil {
		return "", "a mount takes the host's root: " + err.Error()
	}
	r.Cleanup(func() {
		if err := unmount(); err != nil {
			r.Error(err)
		}
	})
	return dir, ""
}

// usage returns a function that measures the disk usage of the given boxes, as the server does.
func usage(specs ...sandbox.Spec) func(context.Context, holdfast.BoxID) (sandbox.DiskUsage, error) {
	return func(ctx context.Context, id holdfast.BoxID) (sandbox.DiskUsage, error) {
		for _, s := range specs {
			if s.Box == id {
				u, err := rooted.DiskUsage(ctx, s.Dir, 0)
				return sandbox.DiskUsage{Bytes: u.Bytes, Files: int64(u.Entries), Hidden: u.Partial}, err
			}
		}
		return sandbox.DiskUsage{}, nil
	}
}

// space returns a function that measures the disk on which a box's directory lies.
func (r *rig) space(s sandbox.Spec) func() (pool.DiskSpace, error) {
	return func() (pool.DiskSpace, error) {
		d, err := rooted.DiskSpace(s.Dir)
		return pool.DiskSpace(d), err
	}
}

func (r *rig) measured(s sandbox.Spec) pool.DiskSpace {
	r.Helper()
	d, err := r.space(s)()
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// goesOn checks that the session can continue: it starts the box again, cleans up and stops it.
func (r *rig) goesOn(p *pool.Pool, spec sandbox.Spec) {
	r.Helper()
	h, err := p.Acquire(r.Context(), spec, false, nil)
	if err != nil {
		r.Fatal(err)
	}
	if got := r.exec(h.Box, wire.ExecRequest{Shell: "rm -rf /workspace/big /workspace/many"}); got != "exit 0" {
		r.Errorf("the session cannot continue after the attack: removing its files printed %s", got)
	}
	h.Release()
	if err := p.Stop(r.Context(), spec.Box, "next", 0); err != nil {
		r.Error(err)
	}
}

// unwatched is the control of attacks on the disk: it makes the attack in a pool that does not
// watch the disk, and measures what the attack leaves free.
func (r *rig) unwatched(spec sandbox.Spec, attack []string) (saw string, left pool.DiskSpace) {
	r.Helper()
	p := r.pool(make(chan holdfast.BoxEnded, 4), nil)
	saw, _ = r.attack(p, spec, attack, nil)
	left = r.measured(spec)
	if !strings.HasPrefix(strings.TrimPrefix(saw, "taken "), "ok") {
		r.Errorf("the control failed: the attack in a pool that does not watch the disk printed %s", saw)
	}
	if err := p.Remove(r.Context(), spec.Box); err != nil {
		r.Error(err)
	}
	return "not watched: " + strings.TrimPrefix(saw, "taken "), left
}

// pool makes a pool over the driver, which reports each box that it stops. The pool does not know
// boxes that others started.
func (r *rig) pool(stops chan holdfast.BoxEnded, disk *pool.Disk) *pool.Pool {
	r.Helper()
	p := pool.New(pool.Config{
		Driver: &onlyOwn{Driver: r.driver}, Token: tokens.Add(1), FreezeAfter: -1, StopAfter: -1, Disk: disk,
		OnEvent: func(ev pool.Event) {
			if ev.Type == holdfast.EventBoxStopped {
				stops <- ev.Ended
			}
		},
	})
	if err := p.Start(r.Context(), false, func(holdfast.BoxID) bool { return true }); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(r.Context()), false); err != nil {
			r.Error(err)
		}
	})
	return p
}

// onlyOwn is a driver for a new pool. It hides the boxes that exist already, so that the pool does not adopt them.
type onlyOwn struct{ sandbox.Driver }

// Held calls the Held of the wrapped driver, if the driver has one: only the list of boxes must be hidden.
func (o *onlyOwn) Held(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
	if h, ok := o.Driver.(sandbox.Holder); ok {
		return h.Held(ctx, box)
	}
	return sandbox.DiskUsage{}, nil
}

func (*onlyOwn) List(context.Context) ([]sandbox.Info, error) { return nil, nil }

// attack runs the probe in a box of the pool, until the probe or the box ends.
func (r *rig) attack(p *pool.Pool, spec sandbox.Spec, args []string, stops chan holdfast.BoxEnded) (string, holdfast.BoxEnded) {
	r.Helper()
	h, err := p.Acquire(r.Context(), spec, false, nil)
	if err != nil {
		r.Fatal(err)
	}
	defer h.Release()
	r.install(h.Box)
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	out := &lastLine{}
	call := r.call()
	res, err := h.Box.Exec(ctx, call, wire.ExecRequest{Argv: append([]string{"/workspace/probe"}, args...)}, sandbox.ExecOptions{Stdout: io.Writer(out)})
	var ended holdfast.BoxEnded
	if stops != nil {
		select {
		case ended = <-stops:
		case <-ctx.Done():
		}
		return "box.stopped, " + ended.Reason, ended
	}
	if err != nil {
		return err.Error(), ended
	}
	return fmt.Sprintf("%s (%s)", out, res.Class), ended
}
