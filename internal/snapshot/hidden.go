package snapshot

import (
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// places are the paths of the workspace and of the home directory in a box.
var places = [2]string{"/workspace", "/home/agent"}

const (
	mostLinks = 40 // how many symlinks are followed for one path at most
	// mostVisited is how many entries of a checkpoint are matched at most with patterns of path rules, as in a box.
	mostVisited = 200_000
)

// view is the files of a checkpoint as the path rules of the session's box show them. Paths are those of
// the box, absolute and clean. One goroutine uses it at a time.
type view struct {
	src   tree.Source
	roots roots
	// The paths denied, and those that match the patterns masks, are hidden with everything below them.
	denied []string
	masks  pattern.Masks
	// within has lists of allowed paths. A path at or below one of limited is visible only if each list allows the path.
	within  [][]string
	limited []string
}

// view returns the files of a checkpoint. A rule hides the path to which its own path leads in the checkpoint,
// symlinks followed; in a box it hides the path to which it leads when the box starts.
func (p *Points) view(ctx context.Context, row journal.Row, src tree.Source, files journal.Checkpoint) (*view, error) {
	rules, err := p.cfg.Walls(ctx, row)
	if err != nil {
		return nil, err
	}
	v := &view{src: src}
	if v.roots, err = rootsOf(files); err != nil {
		return nil, err
	}
	if rules.Empty() {
		return v, nil
	}
	return v, v.hide(ctx, rules)
}

// hide applies path rules. The paths of all rules are resolved first, before one of them hides anything.
func (v *view) hide(ctx context.Context, rules wire.Walls) (err error) {
	masks, err := pattern.CompileMasks(rules.Patterns)
	if err != nil {
		return err
	}
	var denied []string
	for _, rule := range rules.Masked {
		at, _, err := v.follow(ctx, path.Clean(rule), true)
		if err != nil && !leadsNowhere(err) {
			return err
		}
		denied = append(denied, path.Clean(rule), at)
	}
	links, err := v.linksOf(ctx, masks)
	if err != nil {
		return err
	}
	denied = append(denied, links...)
	var within [][]string
	for _, list := range rules.Readable {
		allowed := []string{}
		for _, rule := range list {
			at, _, err := v.follow(ctx, path.Clean(rule), true)
			switch {
			case err == nil:
				allowed = append(allowed, at)
			case !leadsNowhere(err):
				return err
			}
		}
		within = append(within, allowed)
	}
	v.denied, v.masks, v.within, v.limited = denied, masks, within, places[:]
	if rules.KeepHome {
		v.limited = places[:1]
	}
	return nil
}

// linksOf returns the paths to which those symlinks of the checkpoint lead whose own paths match one of the masks.
func (v *view) linksOf(ctx context.Context, masks pattern.Masks) (out []string, err error) {
	visited := 0
	var walk func(dir string) error
	walk = func(dir string) error {
		for e, err := range v.list(ctx, dir) {
			if err != nil {
				return err
			}
			if visited++; visited > mostVisited {
				return holdfast.Errorf(holdfast.KindTooLarge, "checkpoint.files", "the checkpoint has more than %d files, too many to match the patterns of the session's path rules", mostVisited)
			}
			at := path.Join(dir, e.Name)
			switch {
			case e.Type == tree.Dir:
				err = walk(at)
			case e.Type == tree.Symlink && masks.Cover(at):
				var leads string
				if leads, _, err = v.follow(ctx, at, true); err == nil || leadsNowhere(err) {
					out, err = append(out, leads), nil
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if len(masks) == 0 {
		return nil, nil
	}
	for i, place := range places {
		if v.roots.text(i) != "" && err == nil {
			err = walk(place)
		}
	}
	return out, err
}

// leadsNowhere reports whether an error of follow says that nothing is at a path, or that it has too many symlinks.
func leadsNowhere(err error) bool {
	return holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindInvalid)
}

func within(root, name string) bool {
	return root == "/" || name == root || strings.HasPrefix(name, root+"/")
}

// hides reports whether the rules hide a path. Only the last element of the path may be a symlink.
func (v *view) hides(name string) bool { return v.masked(name) || v.unlisted(name) }

// masked reports whether a path is denied. In a box it cannot be opened.
func (v *view) masked(name string) bool {
	return slices.ContainsFunc(v.denied, func(root string) bool { return within(root, name) }) || v.masks.Cover(name)
}

// unlisted reports whether a path is neither an allowed one nor a directory on the way to one. In a box it does not exist.
func (v *view) unlisted(name string) bool {
	if !slices.ContainsFunc(v.limited, func(place string) bool { return within(place, name) }) {
		return false
	}
	return slices.ContainsFunc(v.within, func(list []string) bool {
		return !slices.ContainsFunc(list, func(root string) bool { return within(root, name) || within(name, root) })
	})
}

// follow returns the entry to which a path leads, and the entry's path without symlinks. last says whether a symlink at
// the end is followed. It returns denied for a path that a rule denies, and for a path below one. If an element of the
// path is missing, or is not in the lists of allowed paths, it returns not_found and the path where the file would be.
func (v *view) follow(ctx context.Context, name string, last bool) (at string, e tree.Entry, err error) {
	at, e = "/", tree.Entry{Type: tree.Dir}
	todo := strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		one := todo[0]
		todo = todo[1:]
		switch one {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, one)
		if v.masked(next) {
			return next, e, holdfast.Errorf(holdfast.KindDenied, "checkpoint.files", "the path %s is hidden by the sandbox settings or deny rules of the session, or belongs to an agent", holdfast.Quote(next)).WithHint("a command in the box may open the path, if the session's rules allow that")
		}
		if e, err = v.shown(ctx, next); err != nil {
			if holdfast.IsKind(err, holdfast.KindNotFound) {
				err = holdfast.Errorf(holdfast.KindNotFound, "checkpoint.files", "the checkpoint does not have the path %s", holdfast.Quote(name))
			}
			return path.Join(append([]string{next}, todo...)...), e, err
		}
		if e.Type != tree.Symlink || !last && len(todo) == 0 {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return next, e, holdfast.Errorf(holdfast.KindInvalid, "checkpoint.files", "the path %s leads through more than %d symbolic links", holdfast.Quote(name), mostLinks)
		}
		if path.IsAbs(e.Target) {
			at = "/"
		}
		todo = append(strings.Split(e.Target, "/"), todo...)
	}
	e, err = v.entry(ctx, at) // look the entry up: after a ".." e is the entry of another path
	return at, e, err
}

// tree returns the number of the tree that has a path of the box, and the path in it; ok is false if there is no such
// tree.
func (v *view) tree(at string) (i int, below string, ok bool) {
	for i, place := range places {
		if at == place {
			return i, ".", v.roots.text(i) != ""
		}
		if below, ok := strings.CutPrefix(at, place+"/"); ok {
			return i, below, v.roots.text(i) != ""
		}
	}
	return 0, "", false
}

// shown is entry for a path that is not denied: not_found if the lists of allowed paths do not allow the path.
func (v *view) shown(ctx context.Context, at string) (tree.Entry, error) {
	if v.unlisted(at) {
		return tree.Entry{}, holdfast.Errorf(holdfast.KindNotFound, "checkpoint.files", "the session may not read the path %s", holdfast.Quote(at))
	}
	return v.entry(ctx, at)
}

// entry returns the entry at a path, also if the rules hide it. Only the last element of the path may be a symlink.
func (v *view) entry(ctx context.Context, at string) (tree.Entry, error) {
	i, below, ok := v.tree(at)
	if ok {
		e, err := tree.Lookup(ctx, v.src, v.roots[i], below)
		if !holdfast.IsKind(err, holdfast.KindNotFound) {
			return e, err
		}
		// A missing blob also causes not_found, but that is a fault of the store, not a missing file.
		if missing := (*holdfast.Error)(nil); !errors.As(err, &missing) || missing.Op != tree.LookupOp {
			return e, holdfast.Errorf(holdfast.KindInternal, "checkpoint.files", "the files of the checkpoint cannot be read: %w", err)
		}
	} else if slices.ContainsFunc(places[:], func(place string) bool { return within(at, place) }) {
		return tree.Entry{Type: tree.Dir}, nil
	}
	return tree.Entry{}, holdfast.Errorf(holdfast.KindNotFound, "checkpoint.files", "the checkpoint does not have the path %s", holdfast.Quote(at))
}

// list returns the entries of a directory that the rules do not hide, sorted by name. The path dir has no symlinks.
func (v *view) list(ctx context.Context, dir string) iter.Seq2[tree.Entry, error] {
	i, below, ok := v.tree(dir)
	if !ok {
		return func(func(tree.Entry, error) bool) {}
	}
	return func(yield func(tree.Entry, error) bool) {
		for e, err := range tree.List(ctx, v.src, v.roots[i], below) {
			if (err != nil || !v.hides(path.Join(dir, e.Name))) && !yield(e, err) {
				return
			}
		}
	}
}
