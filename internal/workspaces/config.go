package workspaces

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

const (
	configName   = "config.yaml"
	rejectedName = configName + ".rejected"
	// maxConfig is the largest config.yaml, in bytes.
	maxConfig = 64 << 10
	// lookEvery is the shortest time between two looks at a config.yaml.
	lookEvery = 2 * time.Second
	// mostRejected is how many files that could not be imported are kept for each workspace.
	mostRejected = 100
	// atRest is how long a config.yaml must be unchanged before it is read: an editor may still be writing it.
	atRest = time.Second
)

// file is what the server knows of the config.yaml of a workspace.
type file struct {
	looked time.Time
	// stamp is the stamp that the file had when its content was last read or written.
	stamp rooted.Stamp
	// fault says why the file was not imported or could not be written; empty if the file agrees with the database.
	fault string
	// rejected are the paths of the files that were kept because their changes could not be imported.
	rejected []string
}

// dir returns the directory of a workspace in the data directory. A directory of the user's own is elsewhere.
func (c *Config) dir(id holdfast.Slug) string { return c.Data + "/workspaces/" + string(id) }

// configFiles keeps the config.yaml of each workspace equal to the workspace's row in the database. Safe for
// concurrent use.
type configFiles struct {
	w *Workspaces

	// mu is held while a config.yaml is read, written or removed. Before Resume was called no config.yaml is touched.
	mu      sync.Mutex
	files   map[holdfast.Slug]*file
	resumed bool
}

// refresh imports the config.yaml of a workspace if a person changed it. Unless now is true, it looks at the file at most
// once in lookEvery.
func (c *configFiles) refresh(ctx context.Context, id holdfast.Slug, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.resumed {
		return
	}
	f := c.file(id)
	t := c.w.cfg.Clock()
	if since := t.Sub(f.looked); !now && since >= 0 && since < lookEvery {
		return
	}
	f.looked = t
	c.seeRejected(id, f)
	stamp, err := rooted.Tree(c.w.cfg.dir(id)).Stat(ctx, configName)
	if err == nil {
		if age := t.Sub(time.Unix(0, stamp.Mtime)); stamp == f.stamp || age >= 0 && age < atRest {
			return
		}
	}
	c.sync(ctx, id, f, false)
}

// export writes the config.yaml of a workspace after a change of the database.
func (c *configFiles) export(ctx context.Context, id holdfast.Slug) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resumed {
		c.sync(ctx, id, c.file(id), true)
	}
}

// file returns what the server knows of the config.yaml of a workspace. The caller holds mu.
func (c *configFiles) file(id holdfast.Slug) *file {
	f := c.files[id]
	if f == nil {
		f = &file{}
		c.files[id] = f
	}
	return f
}

func (c *configFiles) seeRejected(id holdfast.Slug, f *file) {
	f.rejected = nil
	list, _ := os.ReadDir(c.w.cfg.dir(id)) // on an error the list is empty; reading config.yaml then fails too, and that is reported
	for _, e := range list {
		if strings.HasPrefix(e.Name(), rejectedName) {
			f.rejected = append(f.rejected, filepath.Join(c.w.cfg.dir(id), e.Name()))
		}
	}
}

// errorOf returns what is wrong with the config.yaml of a workspace, as text for people; "" if nothing is.
func (c *configFiles) errorOf(id holdfast.Slug) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[id]
	switch {
	case f == nil:
		return ""
	case f.fault != "":
		return f.fault
	case len(f.rejected) > 0:
		return "changes that were not imported, because the workspace was changed elsewhere at the same time, are in " + strings.Join(f.rejected, ", ") +
			"; make them again in " + configName + " and remove what is listed"
	}
	return ""
}

// shown returns a workspace as the API shows it.
func (w *Workspaces) shown(r Record) holdfast.Workspace {
	r.ConfigError = w.config.errorOf(r.ID)
	return r.Workspace
}

// sync makes database and config.yaml the same. changed says that the database has just changed. A failure is kept
// in f and logged. The caller holds mu.
func (c *configFiles) sync(ctx context.Context, id holdfast.Slug, f *file, changed bool) {
	// Changes are recorded as made by the owner, since only the server's owner can write the file. A caller whose request
	// is cancelled does not interrupt an import.
	ctx = journal.As(context.WithoutCancel(ctx), "owner")
	err := c.trySync(ctx, id, f, changed)
	for holdfast.IsKind(err, holdfast.KindConflict) && errors.Is(err, errRaced) {
		err = c.trySync(ctx, id, f, changed)
	}
	fault := ""
	if err != nil {
		fault = err.Error()
		if hint := holdfast.HintOf(err); hint != "" {
			fault += "; hint: " + hint
		}
	}
	if fault != "" && fault != f.fault {
		c.w.cfg.Log.Warn("the config.yaml of a workspace was not imported or written", "workspace", id, "error", err, "hint", holdfast.HintOf(err))
	}
	f.fault = fault
}

// errRaced says that the workspace changed while its file was imported.
var errRaced = errors.New("the workspace was changed while its config.yaml was imported")

func (c *configFiles) trySync(ctx context.Context, id holdfast.Slug, f *file, changed bool) error {
	r, err := c.w.cfg.Store.Workspace(ctx, id)
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound), err == nil && r.Deleting:
		return nil
	case err != nil:
		return err
	}
	data, stamp, err := rooted.Tree(c.w.cfg.dir(id)).ReadFile(ctx, configName, maxConfig)
	f.stamp = stamp
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return c.write(ctx, r, f)
	}
	if err != nil {
		f.stamp = rooted.Stamp{}
		return holdfast.Errorf(holdfast.KindInvalid, "workspace.config", "the workspace's settings file %s cannot be read: %w", filepath.Join(c.w.cfg.dir(id), configName), err).
			WithHint("put a regular file there, or remove what is there: the server writes the file again")
	}
	if bytes.Equal(data, render(r.Workspace)) {
		return nil
	}
	revision, edited := exported(data)
	if !edited {
		return c.write(ctx, r, f)
	}
	next, err := c.w.cfg.parse(r, data)
	switch {
	case err == nil && sameSettings(next, r):
		return c.write(ctx, r, f)
	case changed, revision != 0 && revision != r.Revision:
		if err := c.reject(id, f); err != nil {
			return err
		}
		return c.write(ctx, r, f)
	case err != nil:
		return err
	}
	if err := c.w.cfg.checkAll(&next.Workspace); err != nil {
		return err
	}
	next, err = c.w.cfg.Store.ChangeWorkspace(ctx, next)
	if holdfast.IsKind(err, holdfast.KindConflict) {
		return holdfast.Errorf(holdfast.KindConflict, "workspace.config", "%w", errRaced)
	}
	if err != nil {
		return err
	}
	c.w.keep(next)
	c.w.cfg.Log.Info("changes in the config.yaml of a workspace were imported", "workspace", id, "revision", next.Revision)
	return c.write(ctx, next, f)
}

// reject renames a config.yaml whose changes cannot be imported to an unused name, so that it is kept.
func (c *configFiles) reject(id holdfast.Slug, f *file) error {
	dir := c.w.cfg.dir(id)
	at, kept := filepath.Join(dir, configName), filepath.Join(dir, rejectedName)
	for n := 2; ; n++ {
		_, err := os.Lstat(kept)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil || n > mostRejected {
			return holdfast.Errorf(holdfast.KindConflict, "workspace.config", "the settings file %s cannot be imported, because the workspace was changed elsewhere at the same time, and no free file name is left for a copy of it", at).
				WithHint("remove files that you no longer need among %s*", filepath.Join(dir, rejectedName))
		}
		kept = filepath.Join(dir, rejectedName+"."+strconv.Itoa(n))
	}
	if err := os.Rename(at, kept); err != nil {
		return unwritten(at, err)
	}
	f.stamp = rooted.Stamp{}
	c.seeRejected(id, f)
	c.w.cfg.Log.Warn("changes in the config.yaml of a workspace were not imported; the file was kept under another name", "workspace", id, "kept", kept)
	return nil
}

// errSaved says that a person saved a config.yaml after it was read.
var errSaved = errors.New("the config.yaml was saved by a person while the server was writing it")

// write writes the config.yaml of a workspace, unless a person saved it after trySync read it: the next look at the file
// then reads what they saved.
func (c *configFiles) write(ctx context.Context, r Record, f *file) error {
	was, data := f.stamp, render(r.Workspace)
	f.stamp = rooted.Stamp{}
	tree, at := rooted.Tree(c.w.cfg.dir(r.ID)), filepath.Join(c.w.cfg.dir(r.ID), configName)
	err := durable.MkdirAll(c.w.cfg.dir(r.ID), 0o700)
	if err == nil {
		err = durable.Replace(at, func(out *os.File) error {
			// The sync comes first, because it takes long: only the rename follows the look at the stamp.
			if err := errors.Join(durable.Bytes(data)(out), out.Sync()); err != nil {
				return err
			}
			if now, err := tree.Stat(ctx, configName); !holdfast.IsKind(err, holdfast.KindNotFound) && (err != nil || now != was) {
				return errSaved
			}
			return nil
		})
	}
	if errors.Is(err, errSaved) {
		return nil
	}
	if err != nil {
		return unwritten(at, err)
	}
	// If a person saved the file after the rename, its stamp is not noted, so that the next look reads it.
	if has, stamp, err := tree.ReadFile(ctx, configName, maxConfig); err == nil && bytes.Equal(has, data) {
		f.stamp = stamp
	}
	return nil
}

func unwritten(at string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "workspace.config", "the workspace's settings file %s cannot be written: %w", at, err).
		WithHint("the settings are in the database; the server tries to write the file again when it next looks at the file")
}

// forget moves the directory of a workspace whose deletion has begun to the trash, with its config.yaml, and forgets
// what the server knew of that file.
func (c *configFiles) forget(r Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.w.cfg.discard(r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(c.files, r.ID)
	return nil
}
