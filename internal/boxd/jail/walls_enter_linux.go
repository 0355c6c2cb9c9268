package jail

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxListed is how many walls the list of protections in force (event box.started) names; it only counts the others.
const maxListed = 40

// maxReported is how many bytes the list of walls may have that boxd sends to the server: it must fit in one frame.
const maxReported = wire.MaxFrame / 2

// buildWalls turns the path rules of the configuration into mounts. It does nothing without path rules.
func (e *entry) buildWalls() error {
	if e.jail.Walls == nil || e.jail.Walls.Empty() {
		return nil
	}
	e.walls = &walls{spec: e.jail.Walls.Canonical(), grounds: grounds{e.cfg.Workspace, e.cfg.Home}, tool: e.jail.ToolUID}
	if e.jail.SameUID {
		e.walls.tool = -1
	}
	if e.jail.RootTree {
		// In the mount of the workspace only the ids of the tools' user are mapped: boxd makes placeholders with them.
		e.walls.tool, e.walls.maker = -1, e.jail.ToolUID
	}
	if err := e.walls.build(); err != nil {
		return err
	}
	e.missing = append(e.missing, e.walls.missing...)
	return nil
}

// proveWalls makes a confined thread try the accesses that the walls must refuse. If a wall refuses the access of this
// thread, it refuses that of every tool. proveWalls also stores the list of walls that boxd reports to the server.
func (e *entry) proveWalls() error {
	if e.walls == nil {
		return nil
	}
	list := e.walls.list()
	if err := e.forker.Do(proofOf(list)); err != nil {
		return err
	}
	e.jail.Built = e.walls.built(list)
	size := 0
	for _, b := range e.jail.Built {
		size += len(b.Path) + len(`{"path":"","kind":"read-only","dir":true,"made":true,"ino":18446744073709551615},`)
	}
	if size > maxReported {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the list of the %d mounts for path rules has %d bytes, more than the allowed %d", len(list), size, maxReported).
			WithHint("name directories in the path rules instead of the files in them")
	}
	named := 0
	for _, n := range list {
		switch {
		case n.kind == wire.WallPin || n.kind == "" && !n.writable:
			continue
		case named < maxListed:
			e.force("wall: " + n.String())
		}
		named++
	}
	if named > maxListed {
		e.force(fmt.Sprintf("wall: %d more", named-maxListed))
	}
	if len(e.walls.spec.Readable) > 0 {
		e.force("wall: nothing but the allowed read paths")
	}
	return nil
}

func (n *node) String() string {
	kind := n.kind
	if n.writable {
		kind = "writable"
	}
	return kind + " " + holdfast.Quote(n.path)
}

// proofOf returns a function that tries, for each node, the access that it must refuse.
func proofOf(list []*node) func() error {
	return func() error {
		for _, n := range list {
			if err := n.prove(); err != nil {
				return err
			}
		}
		return nil
	}
}

// prove tries, on a thread that is confined like a tool, whether the wall refuses the access that it must refuse.
func (n *node) prove() error {
	var err, want error
	switch {
	case n.kind == wire.WallMasked:
		err, want = open(n.path), unix.EACCES
	case n.kind == wire.WallAbsent:
		err, want = open(n.path), unix.ENOENT
	case n.kind == wire.WallReadOnly && n.dir:
		// The kernel reports a read-only mount (EROFS) before it checks permissions.
		err, want = makeIn(n.path), unix.EROFS
	case n.kind == wire.WallReadOnly:
		err, want = sameMode(n.path), unix.EROFS
	default:
		return nil
	}
	// If the tools' user cannot reach the path at all, it does not matter how the access was refused.
	if hidden := errors.Is(err, unix.EACCES) && errors.Is(reach(n.path), unix.EACCES); !hidden && !errors.Is(err, want) {
		if err == nil {
			err = errors.New("an access that the mount must refuse succeeded")
		}
		return notHeld(n, err)
	}
	return nil
}

func open(p string) error {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func makeIn(p string) error {
	err := unix.Mkdir(p+"/.holdfast-wall", 0o700)
	if err == nil {
		_ = unix.Rmdir(p + "/.holdfast-wall")
	}
	return err
}

func reach(p string) error {
	var st unix.Stat_t
	return unix.Lstat(p, &st)
}

// sameMode sets the mode of a file to its present value. This fails on a read-only mount.
func sameMode(p string) error {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return err
	}
	return unix.Chmod(p, st.Mode&0o777)
}

// built returns the walls that the driver records: those in the workspace and the home, which a rename
// on the host could remove, and the placeholders.
func (w *walls) built(list []*node) []wire.Wall {
	var out []wire.Wall
	for _, n := range list {
		if n.writable || !slices.Contains(w.grounds.lasting(), w.grounds.tree(n.path)) {
			continue
		}
		out = append(out, wire.Wall{Path: n.path, Kind: n.kind, Dir: n.dir, Made: w.made[n.path], Ino: n.ino})
		delete(w.made, n.path)
	}
	for _, p := range slices.Sorted(maps.Keys(w.made)) {
		if slices.Contains(w.grounds.lasting(), w.grounds.tree(p)) {
			out = append(out, wire.Wall{Path: p, Kind: wire.WallPin, Dir: true, Made: true})
		}
	}
	return out
}
