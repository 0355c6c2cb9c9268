package workspaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// MaxNumber is how many workspaces a data directory can have over time.
const MaxNumber = 1 << 20

// maxTitle is the longest title, in bytes.
const maxTitle = 500

// Create makes a workspace. It fails with conflict if the slug is taken, or if a workspace has the directory.
func (w *Workspaces) Create(ctx context.Context, req holdfast.CreateWorkspace) (holdfast.Workspace, error) {
	defer w.cfg.Sealer.Hold()()
	w.making.Lock()
	defer w.making.Unlock()
	var r Record
	err := apply(&r.Workspace, req.WorkspaceSettings)
	if err != nil {
		return r.Workspace, err
	}
	if req.Dir != "" {
		d, err := w.cfg.look(req.Dir)
		if err != nil {
			return r.Workspace, err
		}
		if old, ok := w.having(d); ok {
			return r.Workspace, holdfast.Errorf(holdfast.KindConflict, "workspace", "workspace %s already has the directory %s", old.ID, holdfast.Quote(d.path)).
				WithHint("holdfast session create --workspace %s", old.ID)
		}
		if err := checkNew(ctx, w, d); err != nil {
			return r.Workspace, err
		}
		if err := r.lend(d, req.Umask); err != nil {
			return r.Workspace, err
		}
	} else if r.SetUmask(usualUmask); req.Umask != "" {
		return r.Workspace, noDirectory(req.Umask)
	}
	if req.ID != "" {
		if r.ID, err = holdfast.Parse[holdfast.Slug](req.ID); err != nil {
			return r.Workspace, err
		}
	} else {
		r.ID = w.free(cmp.Or(r.Title, filepath.Base(r.Dir)))
	}
	if err := w.cfg.changeEnv(&r, req.Env, nil); err != nil {
		return r.Workspace, err
	}
	return w.add(ctx, r)
}

// checkNew refuses a directory that no new workspace can have.
func checkNew(ctx context.Context, w *Workspaces, d directory) error {
	if err := w.apart(d); err != nil || os.Getuid() != 0 || d.uid != 0 {
		return err
	}
	return w.cfg.TryRootTree(ctx, d.path, d.inode, d.gid)
}

// usualUmask is the umask of sessions in a directory of the user's own, if the user named none.
const usualUmask = 0o022

// lend makes d the directory of the workspace. umask is the one that the user named, in octal digits; empty means
// usualUmask.
func (r *Record) lend(d directory, umask string) error {
	r.Dir, r.Device, r.Inode, r.UID, r.GID = d.path, d.device, d.inode, d.uid, d.gid
	mask, err := uint64(usualUmask), error(nil)
	if umask != "" {
		mask, err = strconv.ParseUint(umask, 8, 32)
	}
	if err != nil || mask > 0o777 {
		return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the umask %s is not an octal number from 0 to 777", holdfast.Quote(umask)).
			WithHint("send what the command umask prints, as 0022")
	}
	r.SetUmask(uint32(mask))
	return nil
}

// SetUmask sets the umask of a workspace: as a number for the server and, if the workspace is in a directory of the user's
// own, as four octal digits for people.
func (r *Record) SetUmask(mask uint32) {
	r.Mask = mask
	if r.Umask = ""; r.Dir != "" {
		r.Umask = fmt.Sprintf("%04o", mask)
	}
}

func noDirectory(umask string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the request names the umask %s but no directory", holdfast.Quote(umask)).
		WithHint("a umask is only for a directory of your own: name the directory, or leave out the umask")
}

// add stores a new workspace. The caller holds the mutex making.
func (w *Workspaces) add(ctx context.Context, r Record) (holdfast.Workspace, error) {
	if err := w.cfg.checkAll(&r.Workspace); err != nil {
		return r.Workspace, err
	}
	if err := w.cfg.checkMount(&holdfast.Workspace{}, &r.Workspace); err != nil {
		return r.Workspace, err
	}
	r, err := w.cfg.Store.AddWorkspace(ctx, r)
	if err != nil {
		return r.Workspace, err
	}
	// A request that is cancelled must not leave a half made workspace behind.
	ctx = context.WithoutCancel(ctx)
	added(ctx, w, r)
	switch {
	case r.Number > MaxNumber:
		err = holdfast.Errorf(holdfast.KindUnavailable, "workspace", "the workspace would be number %d in this data directory, and no user ids of the host are left for its box", r.Number)
	case r.Dir == "":
		err = w.cfg.Make(w.Tree(r), r.Number)
	}
	if err != nil {
		undone := w.cfg.Store.RemoveWorkspace(ctx, r.ID)
		if undone == nil || holdfast.IsKind(undone, holdfast.KindNotFound) {
			forget(w, r)
			return r.Workspace, err
		}
		return r.Workspace, errors.Join(err, undone)
	}
	made(w, r)
	w.config.export(ctx, r.ID)
	return w.shown(r), nil
}

// added records in memory that a workspace was just stored, and that its files are not made yet.
func added(ctx context.Context, w *Workspaces, r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// The workspace may have been changed or deleted since it was stored.
	now, err := w.cfg.Store.Workspace(ctx, r.ID)
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return
	case err != nil:
		now = r
	}
	w.records[r.ID], w.unmade[r.ID] = now, r.Number
}

// made records in memory that the files of a workspace exist.
func made(w *Workspaces, r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unmade[r.ID] == r.Number {
		delete(w.unmade, r.ID)
	}
}

// forget removes a deleted workspace from memory.
func forget(w *Workspaces, r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.records[r.ID].Number == r.Number {
		delete(w.records, r.ID)
		delete(w.unmade, r.ID)
	}
}

// ready fails with conflict if a workspace cannot have a new session: it is being made or deleted.
func ready(w *Workspaces, r Record) error {
	if r.Deleting {
		return beingDeleted(r.ID)
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if have, ok := w.records[r.ID]; !ok || have.Number != r.Number || w.unmade[r.ID] == r.Number {
		return holdfast.Errorf(holdfast.KindConflict, "workspace", "workspace %s has no files yet", r.ID).
			WithHint("the workspace is being made: try again; if that does not help: holdfast workspace delete %s, then make it again", r.ID)
	}
	return nil
}

// keep replaces the workspace's record in memory by r, which was just stored. Changes come here in any order, so an
// older record, and one of a workspace that is gone, is ignored.
func (w *Workspaces) keep(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have, ok := w.records[r.ID]; ok && have.Number == r.Number && have.Revision < r.Revision {
		w.records[r.ID] = r
	}
}

// check refuses settings that no session could have.
func (c Config) check(s *holdfast.Workspace) error {
	if len(s.Title) > maxTitle {
		return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the workspace's title %s is longer than %d bytes", holdfast.Quote(s.Title), maxTitle)
	}
	if err := journal.CheckText("title", s.Title); err != nil {
		return err
	}
	if s.Model != "" {
		if err := c.CheckModel(s.Model); err != nil {
			return err
		}
	}
	if s.Runtime != "" {
		if err := c.CheckRuntime(s.Runtime, cmp.Or(s.DefaultTrust, holdfast.Untrusted)); err != nil {
			return err
		}
	}
	if err := c.CheckNetwork(s.Network); err != nil {
		return err
	}
	var err error
	if s.Limits, err = c.CheckLimits(s.Limits); err != nil {
		return err
	}
	return c.checkRules(s)
}

// behaviors are the keys under which a workspace has permission rules.
var behaviors = [...]string{"allow", "ask", "deny"}

// checkRules refuses permission rules that no session could have.
func (c Config) checkRules(s *holdfast.Workspace) error {
	for key, rules := range s.Permissions {
		if !slices.Contains(behaviors[:], key) {
			return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the permissions of a workspace have no key %s", holdfast.Quote(key)).
				WithHint("the permissions of a workspace have the keys %s", strings.Join(behaviors[:], ", "))
		}
		for _, rule := range rules {
			if err := cmp.Or(journal.CheckText("permission rule", rule), c.CheckRule(rule)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAll refuses settings that no session could have, and those that do not fit into config.yaml.
func (c Config) checkAll(s *holdfast.Workspace) error {
	if err := c.check(s); err != nil {
		return err
	}
	if data := render(*s); len(data) > maxConfig || flow(data) > maxFlow {
		return holdfast.Errorf(holdfast.KindTooLarge, "workspace", "the workspace's settings do not fit into its config.yaml: the file can have at most %d bytes, and at most %d brackets, braces, commas, dashes and other special characters", maxConfig, maxFlow).
			WithHint("shorten permissions or network; one rule with a * can replace many rules")
	}
	return nil
}

// having returns the workspace to which a directory belongs; false if it belongs to none.
func (w *Workspaces) having(d directory) (Record, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, r := range w.records {
		if r.Dir != "" && r.Inode == d.inode && (r.Dir == d.path || r.Device == d.device) {
			return r, true
		}
	}
	return Record{}, false
}

// apart refuses a directory for a new workspace if it contains the directory of another workspace, lies in one, or is
// at the path where one was.
func (w *Workspaces) apart(d directory) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, r := range w.records {
		switch {
		case r.Dir == "":
		case r.Dir == d.path:
			return same(r)
		case within(r.Dir, d.path), within(d.path, r.Dir):
			return holdfast.Errorf(holdfast.KindConflict, "workspace", "the directory %s cannot be a workspace: %s, the directory of workspace %s, lies inside it or around it",
				holdfast.Quote(d.path), holdfast.Quote(r.Dir), r.ID).WithHint("work in that workspace: holdfast session create --workspace %s", r.ID)
		}
	}
	return nil
}

// free returns a slug that is made from a name and that no workspace has yet.
func (w *Workspaces) free(name string) holdfast.Slug {
	w.mu.RLock()
	defer w.mu.RUnlock()
	base := slugOf(name)
	for n := 1; ; n++ {
		slug := base
		if n > 1 {
			end := "-" + strconv.Itoa(n)
			slug = strings.TrimRight(base[:min(len(base), 63-len(end))], "-") + end
		}
		if _, taken := w.records[holdfast.Slug(slug)]; !taken {
			return holdfast.Slug(slug)
		}
	}
}

// slugOf turns a name into a slug.
func slugOf(name string) string {
	var out []byte
	for _, c := range []byte(strings.ToLower(name)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			out = append(out, c)
		case len(out) > 0 && out[len(out)-1] != '-':
			out = append(out, '-')
		}
	}
	return cmp.Or(strings.Trim(string(out[:min(len(out), 63)]), "-"), "workspace")
}

// For returns the workspace that a new session is to have: the named one, or that of a directory. If no workspace has the
// directory, For makes one, with the given umask. It returns nil if the request names neither. The caller holds the root
// key: see Sealer.
func (w *Workspaces) For(ctx context.Context, slug, dir, umask string) (*holdfast.Workspace, error) {
	switch {
	case umask != "" && dir == "":
		return nil, noDirectory(umask)
	case slug != "" && dir != "":
		return nil, holdfast.Errorf(holdfast.KindInvalid, "session.create", "the request names both the workspace %s and a directory", holdfast.Quote(slug)).
			WithHint("name either the workspace or the directory")
	case slug != "":
		id, err := holdfast.Parse[holdfast.Slug](slug)
		if err != nil {
			return nil, err
		}
		r, err := w.current(ctx, id, false)
		if err == nil {
			err = ready(w, r)
		}
		if err == nil && r.Dir != "" {
			err = w.Intact(r)
		}
		return &r.Workspace, err
	case dir == "":
		return nil, nil
	}
	d, err := w.cfg.look(dir)
	if err != nil {
		return nil, err
	}
	w.making.Lock()
	defer w.making.Unlock()
	if r, ok := w.having(d); ok {
		if err := ready(w, r); err != nil {
			return nil, err
		}
		w.config.refresh(ctx, r.ID, false)
		r, _ = w.having(d)
		return &r.Workspace, same(r)
	}
	if err := checkNew(ctx, w, d); err != nil {
		return nil, err
	}
	r := Record{}
	if err := r.lend(d, umask); err != nil {
		return nil, err
	}
	r.ID = w.free(filepath.Base(d.path))
	made, err := w.add(ctx, r)
	return &made, err
}

// current returns the stored workspace, after importing its config.yaml if that changed. Unless now is true, it may leave
// out the look at the file, as refresh does. The caller holds the root key.
func (w *Workspaces) current(ctx context.Context, id holdfast.Slug, now bool) (Record, error) {
	w.mu.RLock()
	_, ok := w.records[id]
	w.mu.RUnlock()
	if ok {
		w.config.refresh(ctx, id, now)
	}
	return w.cfg.Store.Workspace(ctx, id)
}

// Get returns one workspace; not_found if there is none.
func (w *Workspaces) Get(ctx context.Context, id holdfast.Slug) (holdfast.Workspace, error) {
	defer w.cfg.Sealer.Hold()()
	r, err := w.current(ctx, id, false)
	return w.shown(r), err
}

// List returns all workspaces, ordered by slug.
func (w *Workspaces) List(ctx context.Context) ([]holdfast.Workspace, error) {
	defer w.cfg.Sealer.Hold()()
	w.mu.RLock()
	ids := slices.Collect(maps.Keys(w.records))
	w.mu.RUnlock()
	for _, id := range ids {
		w.config.refresh(ctx, id, false)
	}
	list, err := w.cfg.Store.Workspaces(ctx)
	out := make([]holdfast.Workspace, len(list))
	for i, r := range list {
		out[i] = w.shown(r)
	}
	return out, err
}

// Update changes what the new sessions of a workspace get. If the request names a revision and the workspace has another
// one, Update fails with conflict.
func (w *Workspaces) Update(ctx context.Context, id holdfast.Slug, req holdfast.UpdateWorkspace) (holdfast.Workspace, error) {
	defer w.cfg.Sealer.Hold()()
	// Import what a person wrote into config.yaml first. Then the update changes only the settings that it names.
	for looked := false; ; looked = true {
		r, err := w.current(ctx, id, !looked)
		if err != nil {
			return r.Workspace, err
		}
		if req.Revision != 0 {
			r.Revision = req.Revision
		}
		before := r.Workspace
		if err := journal.CheckText("name", req.RemoveEnv...); err != nil {
			return r.Workspace, err
		}
		if err := apply(&r.Workspace, req.WorkspaceSettings); err != nil {
			return r.Workspace, err
		}
		if err := w.cfg.changeEnv(&r, req.Env, req.RemoveEnv); err != nil {
			return r.Workspace, err
		}
		if err := w.cfg.checkAll(&r.Workspace); err != nil {
			return r.Workspace, err
		}
		if err := w.cfg.checkMount(&before, &r.Workspace); err != nil {
			return r.Workspace, err
		}
		n := r.Sessions
		r, err = w.cfg.Store.ChangeWorkspace(ctx, r)
		if holdfast.IsKind(err, holdfast.KindConflict) && req.Revision == 0 {
			continue // another request changed the workspace meanwhile: try again
		}
		if err != nil {
			return r.Workspace, err
		}
		w.keep(r)
		w.config.export(ctx, id)
		r.Sessions = n
		return w.shown(r), nil
	}
}

func apply(s *holdfast.Workspace, req holdfast.WorkspaceSettings) error {
	set := func(to, from *string) {
		if from != nil {
			*to = *from
		}
	}
	set(&s.Title, req.Title)
	set(&s.Model, req.Model)
	set(&s.Runtime, req.Runtime)
	if req.Network != nil {
		s.Network = slices.Clone(*req.Network)
	}
	s.Limits = merged(s.Limits, req.Limits, func(v string) bool { return v == "" })
	s.Permissions = merged(s.Permissions, req.Permissions, func(rules []string) bool { return len(rules) == 0 })
	if req.Mount != nil {
		m, err := parseMount(*req.Mount)
		if err != nil {
			return err
		}
		s.Mount = m
	}
	if req.DefaultTrust != nil {
		if s.DefaultTrust = ""; *req.DefaultTrust != "" {
			t, err := holdfast.Parse[holdfast.Trust](*req.DefaultTrust)
			if err != nil {
				return err
			}
			s.DefaultTrust = t
		}
	}
	return nil
}

// merged returns a copy of the map old with the entries of the map with, except those without a value; nil if none is left.
func merged[V any](old, with map[string]V, none func(V) bool) map[string]V {
	out := map[string]V{}
	maps.Copy(out, old)
	maps.Copy(out, with)
	maps.DeleteFunc(out, func(_ string, v V) bool { return none(v) })
	if len(out) == 0 {
		return nil
	}
	return out
}
