package local

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// extraShared is the key, in the Extra values of a record, of the sharedRecord of a shared box.
const extraShared = "shared"

// sharedRecord is what a server must know to let a session join the box of an earlier server.
type sharedRecord struct {
	// Tool and Group are the host uid and gid of the box's tools; 0 in an ordinary user's box.
	Tool  uint32 `json:"tool,omitempty"`
	Group uint32 `json:"group,omitempty"`
	// Agents is true if each session can have an agent's directory of its own.
	Agents bool `json:"agents,omitempty"`
}

func agentMount(dir string) wire.Mount {
	return wire.Mount{Source: dir, Target: sandbox.AgentDir, ReadOnly: true, NoExec: true}
}

// shared describes what each session of a shared box has for itself; nil for any other box.
func (l *launch) shared() *wire.Shared {
	if !l.spec.Shared {
		return nil
	}
	return &wire.Shared{Private: temporary(l.limits, !l.d.root), Agent: sandbox.AgentDir}
}

// checkShared refuses walls that a session's own mounts would cover, and allowed paths without the home. Patterns are
// fine: boxd builds their walls in each home when its session joins.
func checkShared(spec sandbox.Spec) error {
	w := spec.Walls
	for _, p := range slices.Concat(w.Masked, w.ReadOnly) {
		fixed := filepath.Clean(p)
		for _, own := range []string{boxHome, boxTmp, "/dev/shm", "/dev/pts", "/run/holdfast"} {
			if atOrBelow(fixed, own) || atOrBelow(own, fixed) {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "the path rule %s cannot be enforced in the shared box %s: it concerns %s, of which each session has its own",
					holdfast.Quote(p), holdfast.Quote(string(spec.Box)), own).
					WithHint("limit the rule to %s, or give the session a box of its own", boxWorkspace)
			}
		}
	}
	if len(w.Readable)+len(w.Writable) > 0 && !w.KeepHome {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "allowed paths without the home directory cannot be enforced in the shared box %s, whose sessions have homes of their own", holdfast.Quote(string(spec.Box))).
			WithHint("use denied paths, or give the session a box of its own")
	}
	return nil
}

// atOrBelow reports whether a clean path is dir or lies below it.
func atOrBelow(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// Join implements sandbox.Sharer.
func (d *Driver) Join(ctx context.Context, box holdfast.BoxID, m sandbox.Member) error {
	if !filepath.IsAbs(m.Home) || filepath.Clean(m.Home) != m.Home {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the home %s of session %s is not a clean absolute path", holdfast.Quote(m.Home), holdfast.Quote(string(m.Session)))
	}
	unlock, err := d.Locks.Lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.Running(box)
	if err != nil {
		return err
	}
	shared, ok := extra[sharedRecord](r, extraShared)
	if !ok {
		return holdfast.Errorf(holdfast.KindInvalid, op, "session %s cannot join box %s: the box was not started as a shared one", holdfast.Quote(string(m.Session)), holdfast.Quote(string(box)))
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	if err := boxproc.Owned(m.Home, shared.Tool, shared.Group, true, d.root); err != nil {
		return err
	}
	mounts := []wire.Mount{{Source: m.Home}}
	if m.Agent != "" && shared.Agents {
		mounts = append(mounts, agentMount(m.Agent))
	}
	var files []*os.File
	defer func() { closeAll(files) }()
	for _, mount := range mounts {
		f, err := d.lent(ctx, mount)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	conn, err := d.Connect(ctx, box)
	if err != nil {
		return err
	}
	defer conn.Close()
	return joinBox(ctx, conn.(*net.UnixConn), m, files)
}

// joinBox sends the join and the mounts, and reads boxd's answer.
func joinBox(ctx context.Context, conn *net.UnixConn, m sandbox.Member, mounts []*os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer runtime.KeepAlive(mounts)
	fds := make([]int, len(mounts))
	for i, f := range mounts {
		fds[i] = int(f.Fd())
	}
	var w wire.Welcome
	err := wire.WriteJSON(conn, wire.FrameHello, wire.Hello{Version: wire.Version, Token: m.Token, Join: &wire.Join{Session: m.Session}})
	if err == nil {
		_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	}
	if err == nil {
		var text []byte
		if _, text, err = wire.ReadFrame(conn); err == nil {
			err = json.Unmarshal(text, &w)
		}
	}
	switch {
	case err != nil:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "session %s cannot join the box: %w", holdfast.Quote(string(m.Session)), err)
	case w.Err != nil:
		return w.Err.Err(op)
	}
	return nil
}

func (d *Driver) lent(ctx context.Context, m wire.Mount) (*os.File, error) {
	if d.root {
		fd, err := jail.OpenTree(m)
		if err != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot mount the host's path %s in the box: %w", holdfast.Quote(m.Source), changed(err))
		}
		return os.NewFile(uintptr(fd), m.Source), nil
	}
	f, err := d.lentByHelper(ctx, m)
	if err != nil {
		return nil, explain(holdfast.Errorf(holdfast.KindUnavailable, op, "cannot mount the host's path %s in the box: %w", holdfast.Quote(m.Source), err))
	}
	return f, nil
}

// lentByHelper clones the mount with a helper: a boxd in namespaces of its own that never becomes a box. An
// ordinary user's server may not clone it itself.
func (d *Driver) lentByHelper(ctx context.Context, m wire.Mount) (*os.File, error) {
	b, err := spawnHelper(ctx, d, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: oneID(toolUID, uint32(os.Getuid())), GidMappings: oneID(toolUID, uint32(os.Getgid())),
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	f, err := b.Lent(ctx, m)
	if err != nil {
		_ = b.Kill(context.WithoutCancel(ctx))
		return nil, err
	}
	return f, b.Wait(ctx)
}

func spawnHelper(ctx context.Context, d *Driver, attr *syscall.SysProcAttr) (*boxproc.Boot, error) {
	program, err := d.programFile()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return d.Dir.Spawn(ctx, boxproc.Launch{Argv: []string{"holdfast-boxd", "lend"}, Env: []string{}, Dir: "/", Program: program, Attr: attr}, null)
}
