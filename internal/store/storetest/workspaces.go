package storetest

import (
	"reflect"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

func workspace(id holdfast.Slug) workspaces.Record {
	r := workspaces.Record{
		Workspace: holdfast.Workspace{
			ID: id, Title: "a title", Dir: "/home/someone/" + string(id), DefaultTrust: holdfast.Untrusted, Model: "p/m", Runtime: "native",
			Network: []string{"example.com"}, Mount: holdfast.MountTree,
		},
		Device: 3, Inode: 1<<63 + 5, UID: 1000, GID: 4_000_000_000,
	}
	r.SetUmask(0o027)
	return r
}

// member creates a session in a workspace.
func (e *env) member(id holdfast.Slug) (holdfast.SessionID, error) {
	c := creation(holdfast.SessionID(e.newID()))
	c.Create.Workspace, c.Create.Mount = id, holdfast.MountTree
	_, err := e.try(c)
	return c.Session, err
}

var workspaceCases = []testCase{
	{"returns workspaces as they were added, by slug, also after a restart", func(e *env) {
		want := map[holdfast.Slug]workspaces.Record{}
		for i, id := range []holdfast.Slug{"beta", "alpha"} {
			r := workspace(id)
			if id == "alpha" {
				r.Network, r.Dir, r.Mount = nil, "", ""
				r.SetUmask(0o777)
			}
			got, err := e.Store.AddWorkspace(e.ctx, r)
			e.ok(err)
			r.Number, r.Revision, r.CreatedAt, r.UpdatedAt = int64(i+1), 1, got.CreatedAt, got.CreatedAt
			if !reflect.DeepEqual(got, r) || got.CreatedAt.IsZero() {
				e.Fatalf("added %+v, got %+v", r, got)
			}
			want[id] = r
		}
		for range 2 {
			list, err := e.Store.Workspaces(e.ctx)
			e.ok(err)
			if !reflect.DeepEqual(list, []workspaces.Record{want["alpha"], want["beta"]}) {
				e.Fatalf("workspaces %+v", list)
			}
			one, err := e.Store.Workspace(e.ctx, "beta")
			e.ok(err)
			if !reflect.DeepEqual(one, want["beta"]) {
				e.Fatalf("workspace %+v", one)
			}
			e.Store = e.Reopen(e.T)
		}
	}},
	{"WS-R4: refuses what is no slug, and a slug that is taken", func(e *env) {
		for _, bad := range []holdfast.Slug{"", "A", "a_b", "../x", "a.b", "-a", "a-", "a\n"} {
			_, err := e.Store.AddWorkspace(e.ctx, workspace(bad))
			e.isKind(err, holdfast.KindInvalid, holdfast.Quote(string(bad)))
		}
		_, err := e.Store.AddWorkspace(e.ctx, workspace("a"))
		e.ok(err)
		_, err = e.Store.AddWorkspace(e.ctx, workspace("a"))
		e.isKind(err, holdfast.KindConflict, `"a"`)
		_, err = e.Store.Workspace(e.ctx, "b")
		e.isKind(err, holdfast.KindNotFound, `"b"`)
	}},
	{"changes only the revision that it read, and never the directory", func(e *env) {
		r, err := e.Store.AddWorkspace(e.ctx, workspace("a"))
		e.ok(err)
		next := r
		next.Title, next.DefaultTrust, next.Model, next.Runtime, next.Network, next.Mount, next.Deleting = "", holdfast.Trusted, "", "", []string{}, "", true
		got, err := e.Store.ChangeWorkspace(e.ctx, next)
		e.ok(err)
		equal(e, "revision", got.Revision, 2)
		_, err = e.Store.ChangeWorkspace(e.ctx, next)
		e.isKind(err, holdfast.KindConflict, "2")
		moved := got
		moved.Dir, moved.Inode = "/elsewhere", 1
		_, err = e.Store.ChangeWorkspace(e.ctx, moved)
		e.ok(err)
		e.Store = e.Reopen(e.T)
		got, err = e.Store.Workspace(e.ctx, "a")
		e.ok(err)
		next.Revision, next.UpdatedAt = 3, got.UpdatedAt
		if !reflect.DeepEqual(got, next) {
			e.Fatalf("got %+v, want %+v", got, next)
		}
		gone := workspace("b")
		_, err = e.Store.ChangeWorkspace(e.ctx, gone)
		e.isKind(err, holdfast.KindNotFound, `"b"`)
	}},
	{"WS-R113: has the sessions that name it, and goes only without any", func(e *env) {
		_, err := e.member("a")
		e.isKind(err, holdfast.KindNotFound, `"a"`)
		r, err := e.Store.AddWorkspace(e.ctx, workspace("a"))
		e.ok(err)
		id, err := e.member("a")
		e.ok(err)
		e.newSession()
		members, err := e.Store.Members(e.ctx)
		e.ok(err)
		if !reflect.DeepEqual(members, map[holdfast.SessionID]workspaces.Member{id: {Workspace: "a", Trust: e.row(id).Trust, Mount: holdfast.MountTree}}) {
			e.Fatalf("members %v", members)
		}
		equal(e, "of the workspace", len(e.ids(journal.Query{Workspace: "a"}, nil)), 1)
		e.isKind(e.Store.RemoveWorkspace(e.ctx, "a"), holdfast.KindConflict, "1 sessions")
		r.Deleting = true
		_, err = e.Store.ChangeWorkspace(e.ctx, r)
		e.ok(err)
		_, err = e.member("a")
		e.isKind(err, holdfast.KindNotFound, `"a"`)

		c := journal.NewChange(id)
		none := holdfast.Slug("")
		c.Set = &journal.RowPatch{Workspace: &none, Bounds: &journal.Bounds{Network: []string{"a.example:443"}}}
		c.Rules = []journal.RuleChange{
			rule(holdfast.ScopeWorkspace, journal.WorkspaceKey("a"), "grant", "Bash", false),
			rule(holdfast.ScopeWorkspace, journal.WorkspaceKey("a-b"), "grant", "Edit", false),
		}
		equal(e, "mount", e.row(id).Mount, holdfast.MountTree)
		row := e.commit(c).Row
		equal(e, "workspace", row.Workspace, "")
		equal(e, "mount without a workspace", row.Mount, "")
		equal(e, "mount that is stored", e.row(id).Mount, "")
		same(e, "bounds", e.row(id).Given.Bounds, &journal.Bounds{Network: []string{"a.example:443"}})
		rules := func(id holdfast.Slug, want int) {
			e.Helper()
			list, err := e.Store.Rules(e.ctx, journal.WorkspaceKey(id))
			e.ok(err)
			equal(e, "rules of "+string(id), len(list), want)
		}
		rules("a", 1)
		e.ok(e.Store.RemoveWorkspace(e.ctx, "a"))
		rules("a", 0)
		rules("a-b", 1)
		e.isKind(e.Store.RemoveWorkspace(e.ctx, "a"), holdfast.KindNotFound, `"a"`)
		e.Store = e.Reopen(e.T)
		rules("a", 0)
		again, err := e.Store.AddWorkspace(e.ctx, workspace("a"))
		e.ok(err)
		equal(e, "number", again.Number, r.Number+1)
		_, err = e.Store.ChangeWorkspace(e.ctx, r)
		e.isKind(err, holdfast.KindConflict, "made again")
	}},
	{"HZ3: a server whose epoch is over changes no workspace", func(e *env) {
		r, err := e.Store.AddWorkspace(e.ctx, workspace("a"))
		e.ok(err)
		e.Usurp(e.T)
		_, err = e.Store.ChangeWorkspace(e.ctx, r)
		e.isKind(err, holdfast.KindConflict)
		_, err = e.Store.AddWorkspace(e.ctx, workspace("b"))
		e.isKind(err, holdfast.KindConflict)
		e.isKind(e.Store.RemoveWorkspace(e.ctx, "a"), holdfast.KindConflict)
	}},
}
