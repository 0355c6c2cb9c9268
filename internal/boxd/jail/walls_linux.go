package jail

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// wallsDir is the directory with the files that are mounted as masks. It is in the box's root
// directory, which is read-only once the box runs.
const wallsDir = ".walls"

// The files of wallsDir. maskDir and maskFile are mounted over masked directories and files. absentLink
// is a symlink to absentGoal, which does not exist; it is mounted where no file may appear.
const (
	maskDir    = wallsDir + "/dir"
	maskFile   = wallsDir + "/file"
	absentLink = wallsDir + "/none"
	absentGoal = "/" + wallsDir + "/absent"
)

// walls turns path rules into mounts. It resolves paths in the root directory of the box.
type walls struct {
	spec    wire.Walls
	grounds grounds
	tool    int // uid that becomes the owner of placeholders; -1 leaves the owner as it is
	maker   int // uid with which boxd makes placeholders; 0 means boxd's own uid
	root    int // descriptor of the new root
	nodes   map[string]*node
	made    map[string]bool
	// masks holds the stat of each mask file (maskDir, maskFile, absentLink), by its name.
	masks   map[string]unix.Stat_t
	missing []string
	races   int // how often a file appeared where walls was about to make a placeholder
}

// again counts one more race in w.races, and returns false after 100 of them.
func again(w *walls) bool { w.races++; return w.races <= 100 }

// node is one mount that a path rule needs.
type node struct {
	path string
	kind string
	dir  bool
	// rule is the path or pattern of the path rule for which the mount is made.
	rule string
	// writable is true if the mount makes its path writable in a read-only directory; kind is then empty.
	writable bool
	// listed is true if the mount is read-only because a list of allowed write paths does not include it.
	listed bool
	// ino is the inode number of the file that the mount covers.
	ino uint64
}

// strength returns how strict the mount is. If rules request several mounts for the same path, the one
// with the highest strength is made.
func (n *node) strength() int {
	switch {
	case n.kind == wire.WallMasked:
		return 6
	case n.kind == wire.WallAbsent:
		return 5
	case n.kind == wire.WallReadOnly && !n.listed:
		return 4
	case n.writable:
		return 3
	case n.kind == wire.WallReadOnly:
		return 2
	}
	return 1
}

// build makes all walls. The working directory must be the new root.
func (w *walls) build() (err error) {
	if w.root, err = unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	defer unix.Close(w.root)
	w.nodes, w.made = map[string]*node{}, map[string]bool{}
	return steps([]step{
		{"masks", w.templates},
		{"allowed write paths", w.writable},
		{"allowed read paths", w.readable},
		{"fixed paths", w.fixed},
		{"patterns", w.expand},
		{"mounts of path rules", w.apply},
	})
}

// templates makes the files of wallsDir. A mask is a clone of the mount of one of them.
func (w *walls) templates() error {
	if err := unix.Mkdir(wallsDir, 0o755); err != nil {
		return err
	}
	if err := unix.Mkdir(maskDir, 0); err != nil {
		return err
	}
	fd, err := unix.Open(maskFile, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(fd)
	if err := unix.Symlink(absentGoal, absentLink); err != nil {
		return err
	}
	w.masks, err = readMasks(w.root)
	return err
}

// readMasks returns the stat of each mask file, by its name. A mounted mask has the same device and inode.
func readMasks(root int) (map[string]unix.Stat_t, error) {
	masks := map[string]unix.Stat_t{}
	for _, name := range []string{maskDir, maskFile, absentLink} {
		var st unix.Stat_t
		if err := unix.Fstatat(root, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
		masks[name] = st
	}
	return masks, nil
}

// grounds are the trees in which processes of the box can make, rename and remove files.
type grounds struct{ workspace, home string }

// lasting returns the trees that outlive the box: the workspace, if set, and the home. trees also returns the temporary
// directories.
func (g grounds) lasting() []string {
	if g.workspace == "" {
		return []string{g.home}
	}
	return []string{g.workspace, g.home}
}
func (g grounds) trees() []string { return append(g.lasting(), "/tmp", "/dev/shm") }

// tree returns the directory among those of the method trees that contains the path p, or "" if none does.
func (g grounds) tree(p string) string {
	for _, t := range g.trees() {
		if within(p, t) {
			return t
		}
	}
	return ""
}

// within reports whether p is root or is below it. Both must be clean paths.
func within(p, root string) bool { return root == "/" || p == root || strings.HasPrefix(p, root+"/") }

// note records that a path rule gets no wall, or one with a gap, and why.
func (w *walls) note(rule, why string) {
	w.missing = append(w.missing, "wall of "+holdfast.Quote(rule)+": "+why)
}

// want requests a mount. If several are requested for the same path, the strictest one is made.
func (w *walls) want(n node) {
	if old := w.nodes[n.path]; old == nil || old.strength() < n.strength() {
		w.nodes[n.path] = &n
	}
}

// pin requests a mount for every directory above p in its tree, so that no process in the box can rename
// these directories. A wall would move with a renamed directory, and at the next start of the box
// another file could be at the path of the rule.
func (w *walls) pin(p, rule string) {
	top := w.grounds.tree(p)
	if top == "" {
		return
	}
	for d := path.Dir(p); d != top && within(d, top); d = path.Dir(d) {
		w.want(node{path: d, kind: wire.WallPin, dir: true, rule: rule})
	}
}

// own reports whether p is "/", or is in a directory that the box itself needs, where no wall can be.
func own(p string) bool {
	return p == "/" || within(p, "/proc") || within(p, "/run") || within(p, "/"+wallsDir)
}

// fixed requests the walls of those path rules that are paths, not patterns.
func (w *walls) fixed() error {
	for _, l := range []struct {
		kind  string
		paths []string
	}{{wire.WallMasked, w.spec.Masked}, {wire.WallReadOnly, w.spec.ReadOnly}} {
		for _, rule := range l.paths {
			if err := w.rule(rule, l.kind, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// rule requests a wall at the target of a path. If pinned is set, as for a rule that is not a pattern,
// rule also requests mounts so that no process in the box can rename or remove the symlinks and
// directories on the way to the target.
func (w *walls) rule(rule, kind string, pinned bool) error {
	clean := path.Clean(rule)
	if kind == wire.WallReadOnly && (clean == "/" || slices.ContainsFunc(w.grounds.trees(), func(t string) bool { return t != clean && within(t, clean) })) {
		// The directory contains trees of the session. Only these get a mount: all else is read-only already.
		for _, t := range w.grounds.trees() {
			if within(t, clean) {
				w.want(node{path: t, kind: kind, dir: true, rule: rule})
			}
		}
		return nil
	}
	if clean == "/" {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the path rule %s would deny every file of the box", holdfast.Quote(rule)).
			WithHint("deny the tools by their names instead: Read, Edit, Bash")
	}
	if own(clean) {
		w.note(rule, "the box itself uses that path; only file tools and the text of commands are checked")
		return nil
	}
	p, err := w.follow(clean)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the path rule %s cannot be resolved: %w", holdfast.Quote(rule), err).
			WithHint("%s", fixRule)
	}
	for _, l := range p.links {
		if pinned {
			w.want(node{path: l, kind: wire.WallPin, rule: rule})
			w.pin(l, rule)
		}
	}
	if len(p.links) > 0 && (p.loop || w.grounds.tree(p.where()) == "") {
		w.note(rule, "a symlink on the path leads out of the session's files, to "+holdfast.Quote(p.where()))
		return nil
	}
	if len(p.rest) > 0 {
		return w.absent(rule, kind, pinned, p)
	}
	if p.st.Mode&unix.S_IFMT == unix.S_IFREG && p.st.Nlink > 1 {
		w.note(rule, fmt.Sprintf("the file has %d names (hard links), and the wall covers only this one", p.st.Nlink))
	}
	w.want(node{path: p.path, kind: kind, dir: p.isDir(), rule: rule})
	if pinned {
		w.pin(p.path, rule)
	}
	return nil
}

// fixRule is the hint in the error if a path rule prevents the box from starting.
const fixRule = "look at the path in the session's workspace, or change the rule; holdfast policy explain shows where rules come from"

// absent handles a rule whose path does not exist. If a process of the box could make a file there,
// absent makes a placeholder and requests a wall at its path.
func (w *walls) absent(rule, kind string, pinned bool, p lead) error {
	if w.grounds.tree(p.path) == "" {
		return nil // outside the trees everything is read-only, so no file can appear
	}
	if !p.isDir() {
		// The last part of the path that exists is a file. As long as it stays, no file can appear below it.
		w.want(node{path: p.path, kind: wire.WallPin, rule: rule})
		w.pin(p.path, rule)
		return nil
	}
	at, names, dir := p.path, p.rest, strings.HasSuffix(rule, "/")
	if i := slices.Index(names, ".."); i >= 0 {
		// The path has ".." after a name that does not exist. The path leads nowhere as long as this
		// name does not exist, so a placeholder for this name is enough.
		names, dir = names[:i], false
	}
	for i, name := range names {
		at = path.Join(at, name)
		last := i == len(names)-1
		err := w.placeholder(at, dir || !last)
		switch {
		case errors.Is(err, unix.EROFS):
			return nil
		case errors.Is(err, unix.EEXIST) && again(w):
			return w.rule(rule, kind, pinned) // another box of the same workspace has just made a file there
		case err != nil:
			return holdfast.Errorf(holdfast.KindUnavailable, op, "the placeholder for the path rule %s cannot be made at %s: %w",
				holdfast.Quote(rule), holdfast.Quote(at), err).WithHint("%s", fixRule)
		}
		w.made[at] = true
	}
	if !dir {
		kind = wire.WallAbsent
	}
	w.want(node{path: at, kind: kind, dir: dir, rule: rule})
	w.pin(at, rule)
	return nil
}

// apply makes the requested mounts, those of parent directories first, and then checks the masks.
func (w *walls) apply() error {
	list := w.list()
	for _, n := range list {
		if err := w.mount(n); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "the mount that enforces the path rule %s cannot be made at %s: %w",
				holdfast.Quote(n.rule), holdfast.Quote(n.path), err).WithHint("%s", fixRule)
		}
	}
	for _, n := range list {
		if err := w.verify(n); err != nil {
			return err
		}
	}
	return nil
}

// list returns the requested mounts, parent directories first. It omits those below a masked
// directory, and writable paths below a directory that a rule makes read-only.
func (w *walls) list() []*node {
	var out []*node
	for _, n := range w.nodes {
		hidden := false
		for d := path.Dir(n.path); d != "/" && !hidden; d = path.Dir(d) {
			above := w.nodes[d]
			hidden = above != nil && (above.kind == wire.WallMasked || n.writable && above.kind == wire.WallReadOnly && !above.listed)
		}
		if !hidden {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *node) int { return strings.Compare(a.path, b.path) })
	return out
}

// at opens the file at a path that leads through no symlink. If the last name is a symlink, it opens the symlink itself.
func (w *walls) at(p string) (int, error) {
	return unix.Openat2(w.root, strings.TrimPrefix(p, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// mount makes one mount. The mount of a mask is read-only, so that no process can change the mode of the mask.
func (w *walls) mount(n *node) error {
	target, err := w.at(n.path)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	var st unix.Stat_t
	if err := unix.Fstat(target, &st); err != nil {
		return err
	}
	n.ino = st.Ino
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	var tree int
	if name := n.template(); name != "" {
		tree, err = unix.OpenTree(w.root, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	} else {
		tree, err = unix.OpenTree(target, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		attr = unix.MountAttr{}
	}
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	flags := uint(unix.AT_EMPTY_PATH)
	switch {
	case n.kind == wire.WallReadOnly:
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
		flags |= unix.AT_RECURSIVE
	case n.writable:
		attr.Attr_clr = unix.MOUNT_ATTR_RDONLY
	}
	if attr != (unix.MountAttr{}) {
		if err := unix.MountSetattr(tree, "", flags, &attr); err != nil {
			return err
		}
	}
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// template returns the file of wallsDir that is mounted for the node; empty if the node's path is mounted on itself.
func (n *node) template() string {
	switch {
	case n.kind == wire.WallAbsent:
		return absentLink
	case n.kind == wire.WallMasked && n.dir:
		return maskDir
	case n.kind == wire.WallMasked:
		return maskFile
	}
	return ""
}

// verify checks, if the node is a mask, that the file at its path is now the mask.
func (w *walls) verify(n *node) error {
	name := n.template()
	if name == "" {
		return nil
	}
	fd, err := w.at(n.path)
	if err == nil {
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if want := w.masks[name]; err == nil && (st.Dev != want.Dev || st.Ino != want.Ino) {
			err = errors.New("the file at this path is not the mask that boxd mounted there")
		}
	}
	if err != nil {
		return notHeld(n, err)
	}
	return nil
}

// notHeld returns the error for a wall that does not have its effect; why is the reason.
func notHeld(n *node, why error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the mount that enforces the path rule %s does not protect %s: %w",
		holdfast.Quote(n.rule), holdfast.Quote(n.path), why).WithHint("%s", fixRule)
}
