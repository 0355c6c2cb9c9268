package workspaces

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	// atRest is how long a config.yaml must be unchanged before it is read: an editor may still be writing it.
	atRest = time.Second
)

// file is what the server knows of the config.yaml of a workspace.
type file struct {
	looked time.Time
	// stamp is that of the content that was read or written last.
	stamp rooted.Stamp
	// fault says why the file was not imported or could not be written; empty if it holds what the database has.
	fault string
	// rejected is true if there is a config.yaml.rejected.
	rejected bool
}

// dir returns the directory of a workspace in the data directory. A directory of the user's own is elsewhere.
func (w *Workspaces) dir(id holdfast.Slug) string { return filepath.Join(w.cfg.Trees, string(id)) }

// refresh imports the config.yaml of a workspace if a person changed it. Unless now is true, it looks at the file at
// most every lookEvery.
func (w *Workspaces) refresh(ctx context.Context, id holdfast.Slug, now bool) {
	w.filing.Lock()
	defer w.filing.Unlock()
	if !w.resumed {
		return
	}
	f := w.file(id)
	t := w.cfg.Clock()
	if since := t.Sub(f.looked); !now && since >= 0 && since < lookEvery {
		return
	}
	f.looked = t
	w.seeRejected(id, f)
	stamp, err := rooted.Tree(w.dir(id)).Stat(ctx, configName)
	if err == nil {
		if age := t.Sub(time.Unix(0, stamp.Mtime)); stamp == f.stamp || age >= 0 && age < atRest {
			return
		}
	}
	w.sync(ctx, id, f, false)
}

// export writes the config.yaml of a workspace after a change of the database.
func (w *Workspaces) export(ctx context.Context, id holdfast.Slug) {
	w.filing.Lock()
	defer w.filing.Unlock()
	if w.resumed {
		w.sync(ctx, id, w.file(id), true)
	}
}

// file returns the file of a workspace. The caller holds filing.
func (w *Workspaces) file(id holdfast.Slug) *file {
	f := w.files[id]
	if f == nil {
		f = &file{}
		w.files[id] = f
	}
	return f
}

func (w *Workspaces) seeRejected(id holdfast.Slug, f *file) {
	_, err := os.Lstat(filepath.Join(w.dir(id), rejectedName))
	f.rejected = err == nil
}

// configError returns what is to be said of the config.yaml of a workspace.
func (w *Workspaces) configError(id holdfast.Slug) string {
	w.filing.Lock()
	defer w.filing.Unlock()
	f := w.files[id]
	switch {
	case f == nil:
		return ""
	case f.fault != "":
		return f.fault
	case f.rejected:
		return filepath.Join(w.dir(id), rejectedName) + " holds changes that were not imported, because the workspace was changed elsewhere at the same time; make them again in " + configName + " and remove it"
	}
	return ""
}

// shown returns a workspace as the API shows it.
func (w *Workspaces) shown(r Record) holdfast.Workspace {
	r.ConfigError = w.configError(r.ID)
	return r.Workspace
}

// sync makes database and config.yaml the same. changed says that the database has just changed. A failure is kept
// in f and logged. The caller holds filing.
func (w *Workspaces) sync(ctx context.Context, id holdfast.Slug, f *file, changed bool) {
	// Who may write the file owns the server; a caller that goes away does not interrupt an import.
	ctx = journal.As(context.WithoutCancel(ctx), "owner")
	err := w.trySync(ctx, id, f, changed)
	for holdfast.IsKind(err, holdfast.KindConflict) && errors.Is(err, errRaced) {
		err = w.trySync(ctx, id, f, changed)
	}
	fault := ""
	if err != nil {
		fault = err.Error()
		if hint := holdfast.HintOf(err); hint != "" {
			fault += "; hint: " + hint
		}
	}
	if fault != "" && fault != f.fault {
		w.cfg.Log.Warn("workspace.config", "workspace", id, "error", err, "hint", holdfast.HintOf(err))
	}
	f.fault = fault
}

// errRaced says that the workspace changed while its file was imported.
var errRaced = errors.New("the workspace changed during the import")

func (w *Workspaces) trySync(ctx context.Context, id holdfast.Slug, f *file, changed bool) error {
	r, err := w.cfg.Store.Workspace(ctx, id)
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound), err == nil && r.Deleting:
		return nil
	case err != nil:
		return err
	}
	data, stamp, err := rooted.Tree(w.dir(id)).ReadFile(ctx, configName, maxConfig)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return w.write(ctx, r, f)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "workspace.config", "%s cannot be read: %w", filepath.Join(w.dir(id), configName), err).
			WithHint("put a regular file there, or remove it: the server writes it again")
	}
	f.stamp = stamp
	if bytes.Equal(data, render(r.Workspace)) {
		return nil
	}
	revision, edited := exported(data)
	if !edited {
		return w.write(ctx, r, f)
	}
	next, err := w.parse(r, data)
	switch {
	case err == nil && sameSettings(next.Workspace, r.Workspace):
		return w.write(ctx, r, f)
	case changed, revision != 0 && revision != r.Revision:
		if err := w.reject(id, f); err != nil {
			return err
		}
		return w.write(ctx, r, f)
	case err != nil:
		return err
	}
	next, err = w.cfg.Store.ChangeWorkspace(ctx, next)
	if holdfast.IsKind(err, holdfast.KindConflict) {
		return holdfast.Errorf(holdfast.KindConflict, "workspace.config", "%w", errRaced)
	}
	if err != nil {
		return err
	}
	w.keep(next)
	w.cfg.Log.Info("workspace.imported", "workspace", id, "revision", next.Revision)
	return w.write(ctx, next, f)
}

// reject keeps a config.yaml whose changes cannot be imported under another name.
func (w *Workspaces) reject(id holdfast.Slug, f *file) error {
	at := filepath.Join(w.dir(id), configName)
	if err := os.Rename(at, filepath.Join(w.dir(id), rejectedName)); err != nil {
		return unwritten(at, err)
	}
	f.rejected = true
	w.cfg.Log.Warn("workspace.config.rejected", "workspace", id, "kept", filepath.Join(w.dir(id), rejectedName))
	return nil
}

// write writes the config.yaml of a workspace.
func (w *Workspaces) write(ctx context.Context, r Record, f *file) error {
	at := filepath.Join(w.dir(r.ID), configName)
	err := durable.MkdirAll(w.dir(r.ID), 0o700)
	if err == nil {
		err = durable.Replace(at, durable.Bytes(render(r.Workspace)))
	}
	if err != nil {
		f.stamp = rooted.Stamp{}
		return unwritten(at, err)
	}
	f.stamp, err = rooted.Tree(w.dir(r.ID)).Stat(ctx, configName)
	return err
}

func unwritten(at string, err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "workspace.config", "%s cannot be written: %w", at, err).
		WithHint("the database has the settings; the server tries again when it looks at the file")
}

// forget moves the directory of a workspace whose deletion has begun to the trash, its config.yaml with it, and
// forgets what it knew of the file.
func (w *Workspaces) forget(r Record) error {
	w.filing.Lock()
	defer w.filing.Unlock()
	if err := w.discard(r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(w.files, r.ID)
	return nil
}
