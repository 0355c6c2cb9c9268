package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agents"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// Verification is the result of `holdfast doctor --verify`.
type Verification struct {
	OK     bool           `json:"ok"`
	Data   string         `json:"data"`
	Checks []checks.Check `json:"checks"`

	sessions int64
}

// restore is the hint for damage that the server cannot repair.
const restore = "put the data directory back from a backup"

// maxNamed is the most findings of one kind that a verification lists.
const maxNamed = 20

// verifier checks one data directory.
type verifier struct {
	data    string
	environ []string
	behind  []holdfast.SessionID
	checks  []checks.Check
}

func (v *verifier) add(c checks.Check) { v.checks = append(v.checks, c) }

// addErr adds a failed check if err is set, else a good one with detail.
func (v *verifier) addErr(name string, err error, detail string) {
	switch hint := holdfast.HintOf(err); {
	case err == nil:
		v.add(checks.Good(name, "%s", detail))
	case hint == "":
		v.add(checks.Bad(name, restore, "%v", err))
	default:
		v.add(checks.Bad(name, hint, "%v", err))
	}
}

// Verify checks everything in a data directory, whether or not a server runs on it. It changes nothing.
// environ is the environment that a server would have. The sessions in behind may lack their files if they
// have no checkpoint either: a backup was written before their first checkpoint.
func Verify(ctx context.Context, cfg config.Config, environ []string, behind ...holdfast.SessionID) (Verification, error) {
	v := &verifier{data: cfg.Data, environ: environ, behind: behind}
	out := Verification{Data: cfg.Data}
	if err := checkDatabase(cfg.Data); err != nil {
		out.Checks = []checks.Check{checks.Bad("database", holdfast.HintOf(err), "%v", err)}
		return out, nil
	}
	// Read the boxes before the database: a session is in the database before its box exists.
	boxes, err := inspectBoxes(cfg.Data)
	if err != nil {
		return out, err
	}
	found, err := sqlite.Verify(ctx, filepath.Join(cfg.Data, "holdfast.db"))
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return out, holdfast.Errorf(holdfast.KindNotFound, "doctor", "there is no database in the data directory %s", cfg.Data).
			WithHint("holdfast doctor --verify --data DIR")
	}
	if err != nil {
		return out, err
	}
	v.database(found)
	if c, ok := checkAudit(ctx, cfg.Data); ok {
		v.add(c)
	}
	v.keys(found)
	v.packs(ctx)
	v.agents(ctx, found.Versions)
	if found.Rows != nil {
		v.boxes(boxes, found.Rows)
		v.files(found.Rows)
	}
	out.OK, out.Checks, out.sessions = true, v.checks, found.Sessions
	for _, c := range out.Checks {
		out.OK = out.OK && c.OK
	}
	return out, nil
}

func (v *verifier) database(found sqlite.Verified) {
	for _, p := range found.Problems {
		v.add(checks.Bad("database", restore, "%s", p))
	}
	if len(found.Problems) > 0 {
		return
	}
	detail := fmt.Sprintf("%d events of %d sessions are what was written", found.Events, found.Sessions)
	if found.Unsummed > 0 {
		detail += fmt.Sprintf("; %d of them are from before there were checksums", found.Unsummed)
	}
	v.add(checks.Good("database", "%s", detail))
}

// keys checks the identity, the token, audit.key, and the root keys, by opening the data that they encrypt.
func (v *verifier) keys(found sqlite.Verified) {
	id, err := lifecycle.LookAtIdentity(v.data)
	detail := "is that of this directory"
	if id.Copy {
		detail = "is that of another directory: this is a copy, or was restored, and starts nothing until holdfast serve --accept-copy"
	}
	v.addErr("identity", err, detail)
	_, err = lifecycle.ReadToken(filepath.Join(v.data, "token"))
	v.addErr("token", err, "is one")
	v.sealed(found)
	_, err = seal.KeyFile(filepath.Join(v.data, "audit.key"), nil)
	v.addErr("audit.key", err, "is a key")
}

// agentFiles is the name of the check of the agents' files.
const agentFiles = "agents"

// agents reads the files of all versions of agents.
func (v *verifier) agents(ctx context.Context, versions []holdfast.VersionID) {
	var wrong []checks.Check
	for _, id := range versions {
		if err := agents.Verify(ctx, filepath.Join(v.data, "agents"), id); err != nil {
			wrong = append(wrong, checks.Bad(agentFiles, cmp.Or(holdfast.HintOf(err), restore), "%v", err))
		}
	}
	v.compared(agentFiles, wrong, checks.Good(agentFiles, "the files of %d versions are what was deployed", len(versions)))
}

// packs reads every pack of the snapshot store.
func (v *verifier) packs(ctx context.Context) {
	if _, err := os.Lstat(filepath.Join(v.data, snapshotDir)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	packs, err := openPacks(v.data, nil, pack.Config{ReadOnly: true})
	if err != nil {
		v.addErr("snapshots", err, "")
		return
	}
	list, err := packs.List()
	bad := 0
	for _, p := range list {
		// A server that runs may remove a pack meanwhile.
		if perr := packs.Verify(ctx, p.ID); perr != nil && !holdfast.IsKind(perr, holdfast.KindNotFound) && bad < maxNamed {
			v.addErr("snapshots", perr, "")
			bad++
		}
	}
	missing, merr := v.missingPacks(ctx, packs)
	for _, id := range missing[:min(len(missing), maxNamed)] {
		v.addErr("snapshots", holdfast.Errorf(holdfast.KindNotFound, "snapshots", "the snapshot pack %s, which checkpoints need, is missing", id), "")
	}
	if err = cmp.Or(err, merr); err != nil || bad+len(missing) == 0 {
		v.addErr("snapshots", err, fmt.Sprintf("%d packs are what was written", len(list)))
	}
}

// missingPacks returns the packs that checkpoints need and that are not on the disk.
func (v *verifier) missingPacks(ctx context.Context, packs *pack.Store) ([]pack.PackID, error) {
	path := filepath.Join(v.data, "holdfast.db")
	missing, err := sqlite.NeededPacks(ctx, path)
	missing = slices.DeleteFunc(missing, func(id [32]byte) bool {
		_, err := packs.Stat(id)
		return !holdfast.IsKind(err, holdfast.KindNotFound)
	})
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	// A running server may have removed a checkpoint, and with it a pack, since NeededPacks was called first: call it again.
	needed, err := sqlite.NeededPacks(ctx, path)
	var out []pack.PackID
	for _, id := range missing {
		if slices.Contains(needed, id) {
			out = append(out, id)
		}
	}
	return out, err
}

// sealed checks the root keys by opening every secret and every environment of a session or workspace.
func (v *verifier) sealed(found sqlite.Verified) {
	var envs []secrets.Environment
	for _, id := range slices.Sorted(maps.Keys(found.Rows)) {
		if env := found.Rows[id].Env; env != nil {
			envs = append(envs, secrets.Environment{Session: id, Sealed: env})
		}
	}
	says := fmt.Sprintf("opens %d secrets and the environments of %d sessions", len(found.Secrets), len(envs))
	for _, id := range slices.Sorted(maps.Keys(found.Environments)) {
		envs = append(envs, secrets.Environment{Workspace: id, Sealed: found.Environments[id]})
	}
	if n := len(found.Environments); n > 0 {
		says += fmt.Sprintf(" and %d workspaces", n)
	}
	if len(envs)+len(found.Secrets) == 0 {
		return
	}
	v.addErr("secrets.key", v.opens(found.Secrets, envs), says)
}

func (v *verifier) opens(values map[holdfast.SecretName][]byte, envs []secrets.Environment) error {
	ring, err := openRing(v.data, v.environ, nil)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return holdfast.Errorf(holdfast.KindNotFound, "secrets.key", "the key file %s is missing: %d secrets and session environments are encrypted with it", filepath.Join(v.data, "secrets.key"), len(values)+len(envs)).
			WithHint("put the key file back from a backup, or set the variable %s as the server has it", rootKeyVariable)
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := secrets.Check(ring, name, values[name]); err != nil {
			return err
		}
	}
	for _, e := range envs {
		if err := secrets.CheckEnvironment(ring, e); err != nil {
			return err
		}
	}
	return nil
}

// boxRecords holds the box records of all drivers.
type boxRecords struct {
	records []boxproc.Record
	broken  []string
}

func inspectBoxes(data string) (b boxRecords, err error) {
	for _, driver := range []string{"host", "local"} {
		records, broken, err := boxproc.Inspect(filepath.Join(data, "run", driver))
		if err != nil {
			return b, err
		}
		b.records, b.broken = append(b.records, records...), append(b.broken, broken...)
	}
	return b, nil
}

// boxes compares the box records with the sessions. A record of an ended session is not an error,
// because the server may be removing it.
func (v *verifier) boxes(found boxRecords, rows map[holdfast.SessionID]sqlite.VerifiedRow) {
	const name = "boxes"
	known := map[holdfast.BoxID]bool{}
	for id, row := range rows {
		known[id.Box()] = true
		if row.Workspace != "" {
			for _, box := range place.WorkspaceBoxes(row.Workspace) {
				known[box] = true
			}
		}
	}
	var wrong []checks.Check
	for _, path := range found.broken {
		wrong = append(wrong, checks.Bad(name, "rm "+checks.Quoted(path), "%s is not a record of a box", path))
	}
	for _, r := range found.records {
		if !known[r.Box] {
			wrong = append(wrong, checks.Bad(name, "holdfast containers prune, unless the database is older than the box", "box %s has a record, but its session is not in the database", holdfast.Quote(string(r.Box))))
		}
	}
	v.compared(name, wrong, checks.Good(name, "%d on record, each of a session", len(found.records)))
}

// compared adds the check fine if wrong is empty, else the first maxNamed checks of wrong and the
// number of the others.
func (v *verifier) compared(name string, wrong []checks.Check, fine checks.Check) {
	if len(wrong) == 0 {
		v.add(fine)
		return
	}
	v.checks = append(v.checks, wrong[:min(len(wrong), maxNamed)]...)
	if more := len(wrong) - maxNamed; more > 0 {
		v.add(checks.Bad(name, "", "and %d more", more))
	}
}

// files checks that the sessions with files have their directories.
func (v *verifier) files(rows map[holdfast.SessionID]sqlite.VerifiedRow) {
	const name = "files"
	have, restorable, away := 0, 0, map[holdfast.Slug]bool{}
	var gone []checks.Check
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		if !rows[id].HadFiles || rows[id].Ended || !rows[id].Kept && slices.Contains(v.behind, id) {
			continue
		}
		have++
		dir, slug := filepath.Join(v.data, "sessions", string(id), "workspace"), rows[id].Workspace
		if slug != "" {
			dir = cmp.Or(rows[id].Dir, filepath.Join(v.data, "workspaces", string(slug), "files"))
		}
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			continue
		} else if errors.Is(err, fs.ErrNotExist) && rows[id].Kept {
			if restorable++; slug != "" {
				away[slug] = true
			}
			continue
		}
		gone = append(gone, checks.Bad(name, "put it back from a backup; to go on without the files: holdfast session resume --fresh "+string(id), "%s is missing", dir))
	}
	detail := fmt.Sprintf("%d sessions have files, each its directory", have)
	if restorable > 0 {
		detail = fmt.Sprintf("%d sessions have files, %d of them in a checkpoint, from which their next use restores them", have, restorable)
	}
	if len(away) > 0 {
		// Files of a workspace are also missing after a restore: a backup has the checkpoints, not the workspace directories.
		detail += fmt.Sprintf("; the files of workspaces %v are not there: put them back, or holdfast workspace delete lets their sessions go on in copies", slices.Sorted(maps.Keys(away)))
	}
	v.compared(name, gone, checks.Good(name, "%s", detail))
}
