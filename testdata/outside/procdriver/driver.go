// Package procdriver is a sandbox driver that uses the public packages only. Its boxes are a boxd
// and its children, running as ordinary processes of the user without isolation.
package procdriver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const op = "procdriver"

// Driver implements sandbox.Driver.
type Driver struct {
	dir     string // of records and sockets
	program string

	mu    sync.Mutex
	locks map[holdfast.BoxID]chan struct{}
}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver that stores its records in dir.
func New(dir string) (*Driver, error) {
	program, err := boxd.For(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	path, err := program.Extract(dir)
	if err != nil {
		return nil, err
	}
	return &Driver{dir: dir, program: path, locks: map[holdfast.BoxID]chan struct{}{}}, nil
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "proc" }

// Probe implements sandbox.Driver.
func (d *Driver) Probe(context.Context) sandbox.Probe {
	return sandbox.Probe{Driver: d.Name(), Usable: true, Capabilities: []sandbox.Capability{
		{Name: "isolation", Note: true, Detail: "none"},
	}}
}

// record is the stored record of a box. Start is when its boxd started, in clock ticks since the
// machine's boot, so that another process with a reused pid is not mistaken for the boxd.
type record struct {
	Box     holdfast.BoxID `json:"box"`
	PID     int            `json:"pid"`
	Start   string         `json:"start"`
	Started time.Time      `json:"started"`
	Spec    string         `json:"spec"`
}

func (r record) alive() bool { return r.PID > 0 && startOf(r.PID) == r.Start }

// startOf returns when a process started; empty if the process has ended.
func startOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The process's name is in parentheses and may contain any characters.
	i := bytes.LastIndexByte(text, ')')
	if err != nil || i < 0 {
		return ""
	}
	fields := strings.Fields(string(text[i+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// file returns the path of a box's record or socket.
func (d *Driver) file(box holdfast.BoxID, ext string) string {
	sum := sha256.Sum256([]byte(box))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:6])+ext)
}

func (d *Driver) read(box holdfast.BoxID) (r record, err error) {
	text, err := os.ReadFile(d.file(box, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, holdfast.Errorf(holdfast.KindNotFound, op, "there is no box %s", holdfast.Quote(string(box)))
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func (d *Driver) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := d.file(r.Box, ".tmp")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, d.file(r.Box, ".json"))
}

// lock serialises the calls for one box.
func (d *Driver) lock(ctx context.Context, box holdfast.BoxID) (unlock func(), err error) {
	d.mu.Lock()
	l := d.locks[box]
	if l == nil {
		l = make(chan struct{}, 1)
		d.locks[box] = l
	}
	d.mu.Unlock()
	select {
	case l <- struct{}{}:
		if err := ctx.Err(); err != nil { // both were ready
			<-l
			return nil, err
		}
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ensure implements sandbox.Driver.
func (d *Driver) Ensure(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if _, err := holdfast.Parse[holdfast.BoxID](string(spec.Box)); err != nil {
		return sandbox.Info{}, err
	}
	if !filepath.IsAbs(spec.Dir) || filepath.Clean(spec.Dir) != spec.Dir {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a clean absolute path", holdfast.Quote(spec.Dir))
	}
	if !spec.Walls.Empty() {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "driver %s cannot enforce path rules", d.Name())
	}
	if spec.Tree != "" {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "driver %s cannot keep box %s from writing to %s", d.Name(), spec.Box, spec.Tree).
			WithHint("give the session no tree (mount: workspace)")
	}
	if spec.Shared {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "driver %s cannot share box %s among sessions", d.Name(), spec.Box).
			WithHint("give each session a box of its own")
	}
	unlock, err := d.lock(ctx, spec.Box)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer unlock()
	if r, err := d.read(spec.Box); err == nil && r.alive() {
		if conn, err := d.dial(ctx, spec.Box); err == nil {
			_ = conn.Close()
			return info(r), nil
		}
	}
	if err := d.clear(ctx, spec.Box); err != nil {
		return sandbox.Info{}, err
	}
	return d.start(ctx, spec)
}

func (d *Driver) start(ctx context.Context, spec sandbox.Spec) (out sandbox.Info, err error) {
	c := wire.Config{
		Box: string(spec.Box), Listener: 1, State: filepath.Join(spec.Dir, "state"), Workspace: spec.Workspace,
		Home: filepath.Join(spec.Dir, "home"), Tmp: filepath.Join(spec.Dir, "tmp"),
		OrphanAfter: spec.OrphanAfter, SpoolBytes: spec.SpoolBytes,
	}
	if c.Workspace == "" {
		c.Workspace = filepath.Join(spec.Dir, "workspace")
	}
	for _, dir := range []string{c.Workspace, c.Home, c.State, c.Tmp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return out, err
		}
	}
	c.Env = []string{"HOME=" + c.Home, "TMPDIR=" + c.Tmp, d.mark(spec.Box)}
	for _, kv := range os.Environ() {
		if name, _, ok := strings.Cut(kv, "="); ok && sandbox.Inherits(name) {
			c.Env = append(c.Env, kv)
		}
	}

	_ = os.Remove(d.file(spec.Box, ".sock"))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.file(spec.Box, ".sock"), Net: "unix"})
	if err != nil {
		return out, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	listener, err := l.File()
	if err != nil {
		return out, err
	}
	defer listener.Close()
	control, theirs, err := pair()
	if err != nil {
		return out, err
	}
	defer control.Close()
	cmd := exec.Command(d.program, string(spec.Box))
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.ExtraFiles = []*os.File{theirs} // wire.ControlFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return out, err
	}
	go func() { _ = cmd.Wait() }()
	r := record{Box: spec.Box, PID: cmd.Process.Pid, Start: startOf(cmd.Process.Pid), Started: time.Now(), Spec: spec.Hash()}
	// Write the record before boxd gets its configuration, so that no box runs without a record.
	if err = d.write(r); err == nil {
		err = hand(ctx, control, c, listener)
	}
	if err != nil {
		return out, errors.Join(err, d.clear(context.WithoutCancel(ctx), spec.Box))
	}
	return info(r), nil
}

// hand sends boxd its configuration and waits until boxd serves.
func hand(ctx context.Context, control *net.UnixConn, c wire.Config, listener *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = control.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	message, err := wire.AppendConfig(nil, c)
	if err != nil {
		return err
	}
	err = wire.SendFiles(message, []int{int(listener.Fd())}, func(b, rights []byte) (int, error) {
		n, _, err := control.WriteMsgUnix(b, rights, nil)
		return n, err
	})
	if err != nil {
		return err
	}
	_, text, err := wire.ReadFrame(control)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "boxd did not report that it serves: %w", err)
	}
	var st wire.JailStatus
	if err := json.Unmarshal(text, &st); err != nil {
		return err
	}
	if st.Err != nil {
		return st.Err.Err(op)
	}
	return nil
}

func pair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "control")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "control")
	c, err := net.FileConn(f)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}

// Connect implements sandbox.Driver.
func (d *Driver) Connect(ctx context.Context, box holdfast.BoxID) (net.Conn, error) {
	r, err := d.read(box)
	if err != nil {
		return nil, err
	}
	if !r.alive() {
		return nil, holdfast.Errorf(holdfast.KindNotFound, op, "box %s is not running", holdfast.Quote(string(box)))
	}
	return d.dial(ctx, box)
}

func (d *Driver) dial(ctx context.Context, box holdfast.BoxID) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", d.file(box, ".sock"))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	return conn, nil
}

// Stop implements sandbox.Driver.
func (d *Driver) Stop(ctx context.Context, box holdfast.BoxID) error {
	unlock, err := d.lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.read(box)
	known := err == nil && r.alive() // one that died by itself leaves no record
	if err := d.clear(ctx, box); err != nil || !known {
		return err
	}
	r.PID, r.Start = 0, ""
	return d.write(r)
}

// Remove implements sandbox.Driver.
func (d *Driver) Remove(ctx context.Context, box holdfast.BoxID) error {
	unlock, err := d.lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	return d.clear(ctx, box)
}

// mark returns the environment variable, as NAME=value, that all processes of a box have.
func (d *Driver) mark(box holdfast.BoxID) string { return sandbox.Mark + "=" + d.file(box, "") }

// clear kills boxd, then all processes with the box's mark, then removes record and socket.
func (d *Driver) clear(ctx context.Context, box holdfast.BoxID) error {
	for tick := time.NewTicker(2 * time.Millisecond); ; {
		left := d.bearers(box)
		if r, err := d.read(box); err == nil && r.alive() {
			left = append(left, r.PID)
		}
		if len(left) == 0 {
			tick.Stop()
			break
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		}
	}
	for _, ext := range []string{".sock", ".json"} {
		if err := os.Remove(d.file(box, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// bearers returns the pids of the living processes that have the box's mark.
func (d *Driver) bearers(box holdfast.BoxID) (out []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), d.mark(box)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && startOf(pid) != "" {
			out = append(out, pid)
		}
	}
	return out
}

// List implements sandbox.Driver.
func (d *Driver) List(context.Context) ([]sandbox.Info, error) {
	names, err := filepath.Glob(filepath.Join(d.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []sandbox.Info
	for _, name := range names {
		var r record
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, info(r))
	}
	return out, nil
}

func info(r record) sandbox.Info {
	i := sandbox.Info{Box: r.Box, Running: r.alive(), StartedAt: r.Started, Missing: []string{"isolation: none"}}
	if i.Running {
		i.PID, i.Spec = r.PID, r.Spec
	}
	return i
}
