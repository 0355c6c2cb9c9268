package local

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// serverLeaf is the cgroup that a server moves itself to when it is in the same cgroup in which
// boxes are to be made: version 2 allows processes in leaves only.
const serverLeaf = "holdfast-server"

// hierarchyV2 prepares the unified hierarchy. It takes the first place in which a directory for boxes
// can be made and all controllers enabled for it. If there is none, it takes the last place in which
// the directory can be made. own is the server's own cgroup; empty if the server must not move.
func hierarchyV2(places []string, own, name string) hierarchy {
	h := noHierarchy("")
	why := ""
	for i, place := range places {
		if i > 0 && place == places[i-1] {
			continue
		}
		base, err := makeBase([]string{place}, name)
		if err != nil {
			why = err.Error()
			continue
		}
		h = hierarchy{v2: true, base: map[string]string{"": base}, lack: map[string]string{}}
		for _, c := range []string{"memory", "pids", "cpu"} {
			err := enable(place, c)
			if errors.Is(err, unix.EBUSY) && place == own {
				if err = leaveTo(place); err == nil {
					err = enable(place, c)
				}
			}
			if err == nil {
				err = enable(base, c)
			}
			if err != nil {
				h.lack[c] = err.Error()
			}
		}
		_ = unix.Rmdir(base)
		if len(h.lack) == 0 {
			return h
		}
	}
	if !h.v2 {
		return noHierarchy("cgroups may not be made: " + why)
	}
	return h
}

// passOn enables the available controllers for the children of a directory.
func (h hierarchy) passOn(dir string) error {
	for _, c := range []string{"memory", "pids", "cpu"} {
		if _, lacks := h.lack[c]; lacks {
			continue
		}
		if err := enable(dir, c); err != nil {
			return err
		}
	}
	return nil
}

// leaveTo moves this process out of the cgroup place, in which boxes are to be made, into a child cgroup of it.
// It fails if other processes are in place.
func leaveTo(place string) error {
	for _, pid := range procs(place) {
		if pid != os.Getpid() {
			return fmt.Errorf("the cgroup %s contains processes besides the server, such as pid %d", place, pid)
		}
	}
	leaf := path.Join(place, serverLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(path.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

func enable(dir, controller string) error {
	file := path.Join(dir, "cgroup.subtree_control")
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(b)) {
		if c == controller {
			return nil
		}
	}
	if err := os.WriteFile(file, []byte("+"+controller), 0); err != nil {
		return fmt.Errorf("the cgroup controller %s cannot be enabled below %s: %w", controller, dir, err)
	}
	return nil
}

// limitV2 sets the limit of one controller on a leaf of the unified hierarchy.
func limitV2(controller, leaf string, l sandbox.Limits) error {
	if err := enable(path.Dir(leaf), controller); err != nil {
		return err
	}
	switch controller {
	case "memory":
		v := strconv.FormatInt(l.MemoryBytes, 10)
		if err := writeBack(path.Join(leaf, "memory.max"), v, bytesNear(l.MemoryBytes)); err != nil {
			return err
		}
		err := writeBack(path.Join(leaf, "memory.swap.max"), "0", equals("0"))
		if errors.Is(err, os.ErrNotExist) && !swapping() {
			err = nil
		}
		return err
	case "pids":
		v := strconv.FormatInt(l.Pids, 10)
		return writeBack(path.Join(leaf, "pids.max"), v, equals(v))
	case "cpu":
		v := quota(l.CPUs) + " " + strconv.Itoa(cpuPeriod)
		return writeBack(path.Join(leaf, "cpu.max"), v, equals(v))
	}
	return nil
}

// delegate allows boxd to clone its children into the work leaf: for that it must be able to
// write the cgroup.procs files of the leaf and of the directory above both leaves.
func (c *boxCgroup) delegate(uid uint32) error {
	for _, dir := range []string{c.Dirs[""], c.leaf("", leafWork)} {
		if err := os.Chown(path.Join(dir, "cgroup.procs"), int(uid), int(uid)); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make boxd's user the owner of the cgroup of the box: %w", err)
		}
	}
	return nil
}

// openBox opens the box's cgroup directory on v2, so that boxd can be cloned into it.
func (c *boxCgroup) openBox() (*os.File, error) {
	f, err := os.OpenFile(c.Dirs[""], unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the cgroup of the box: %w", err)
	}
	return f, nil
}

// openLeaves opens what boxd needs on v2: the directory of the work leaf, and the cgroup.procs
// file of boxd's own leaf.
func (c *boxCgroup) openLeaves() (work, boxdProcs *os.File, err error) {
	if work, err = os.OpenFile(c.leaf("", leafWork), unix.O_DIRECTORY|unix.O_RDONLY, 0); err != nil {
		return nil, nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the cgroup of the box: %w", err)
	}
	if boxdProcs, err = os.OpenFile(path.Join(c.leaf("", leafBoxd), "cgroup.procs"), os.O_WRONLY, 0); err != nil {
		_ = work.Close()
		return nil, nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the cgroup of the box: %w", err)
	}
	return work, boxdProcs, nil
}
