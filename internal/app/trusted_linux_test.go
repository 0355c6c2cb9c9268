package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// inTree creates a session of a trust level in a workspace.
func inTree(t *testing.T, c *client.Client, slug holdfast.Slug, trust holdfast.Trust) holdfast.SessionID {
	t.Helper()
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: string(slug), Trust: string(trust), Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return ses.ID
}

// siteOf makes a workspace: of a directory of the user's own if lent is true. It returns its slug and its tree.
func siteOf(t *testing.T, c *client.Client, cfg config.Config, lent bool) (slug holdfast.Slug, tree string) {
	t.Helper()
	if !lent {
		if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
			t.Fatal(err)
		}
		return "site", filepath.Join(cfg.Data, "workspaces", "site", "files")
	}
	tree = ownRepository(t)
	slug = inOwnDir(t, c, tree).Workspace
	// The owner of a directory can enter those above it.
	if err := os.Chmod(filepath.Dir(filepath.Dir(tree)), 0o755); err != nil {
		t.Fatal(err)
	}
	return slug, tree
}

// TestWSR17_BothTrustsInOneTree: a trusted and an untrusted session of one workspace work on each other's files, in a tree
// of the server's own and in a lent directory. On a root server, too, all files belong to the tree's owner, and the
// trusted tools are that user, with the host's paths (WS-R15, WS-R17).
func TestWSR17_BothTrustsInOneTree(t *testing.T) {
	for _, lent := range []bool{false, true} {
		t.Run(fmt.Sprintf("lent=%t", lent), func(t *testing.T) {
			cfg := settings(t, "local")
			c, stop := serve(t, cfg)
			slug, tree := siteOf(t, c, cfg, lent)
			host, boxed := inTree(t, c, slug, holdfast.Trusted), inTree(t, c, slug, holdfast.Untrusted)
			says := func(id holdfast.SessionID, command, want string) {
				t.Helper()
				turn(t, c, id, inBash(command))
				if got := outcome(t, c, id); got.IsError || !strings.Contains(got.Content, want) {
					t.Errorf("%s: %+v, want %q", command, got, want)
				}
			}
			owner := statOf(t, tree)
			if root := os.Getuid() == 0; root == (owner.Uid == 0) {
				t.Fatalf("the tree belongs to %d", owner.Uid)
			}
			says(host, `pwd; umask 077; mkdir d; echo host > d/h; echo kept > ~/mine`, tree)
			says(host, `id -u`, fmt.Sprint(owner.Uid))
			turn(t, c, host, fmt.Sprintf(`<script>[{"tool":"Write","input":{"file_path":%q,"content":"written\n"}},{"say":"done"}]</script>`, tree+"/w"))
			says(boxed, `umask 077; echo box >> d/h; echo box >> w; mkdir e; echo box > e/b; rm -f gone; cat w`, "written\nbox")
			says(host, `echo host >> e/b; cat d/h e/b && mv d/h d/moved`, "host\nbox\nbox\nhost")
			for _, name := range []string{"d", "d/moved", "w", "e", "e/b"} {
				if st := statOf(t, filepath.Join(tree, name)); st.Uid != owner.Uid || st.Gid != owner.Gid {
					t.Errorf("%s belongs to %d:%d, the tree to %d:%d", name, st.Uid, st.Gid, owner.Uid, owner.Gid)
				}
			}

			// Both move to the other level, with conversation, files and home, and back, also over a restart.
			to := func(id holdfast.SessionID, trust holdfast.Trust) {
				t.Helper()
				level := string(trust)
				if _, err := c.UpdateSession(t.Context(), id, holdfast.UpdateSession{Trust: &level}); err != nil {
					t.Fatal(err)
				}
			}
			to(host, holdfast.Untrusted)
			to(boxed, holdfast.Trusted)
			says(host, `pwd; cat ~/mine; echo again >> d/moved; echo again >> ~/mine`, "/workspace\nkept")
			says(boxed, `pwd; cat d/moved; echo again >> e/b; echo mine > ~/boxed`, tree+"\nhost\nbox\nagain")
			stop()
			c, _ = serve(t, cfg)
			to(host, holdfast.Trusted)
			to(boxed, holdfast.Untrusted)
			says(host, `cat ~/mine; echo last >> e/b`, "kept\nagain")
			says(boxed, `cat ~/boxed e/b`, "mine\nbox\nhost\nagain\nlast")
			if end := turn(t, c, host, "What do you know?"); !strings.HasPrefix(end.Result, "You have sent 7 messages.") {
				t.Errorf("memory: %q", end.Result)
			}

			// A rewind puts files back with their owner.
			says(host, `rm w; echo first > last`, "")
			says(host, `echo second > last; echo x > w`, "")
			list, err := c.Checkpoints(t.Context(), host, "", 0)
			if err != nil || len(list.Checkpoints) < 2 {
				t.Fatal(list, err)
			}
			if _, err := c.Rewind(t.Context(), host, holdfast.RewindSession{To: list.Checkpoints[1].ID, Files: "restore"}); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(tree, "last")); err != nil || string(b) != "first\n" {
				t.Errorf("after the rewind: %q, %v", b, err)
			} else if st := statOf(t, filepath.Join(tree, "last")); st.Uid != owner.Uid || st.Gid != owner.Gid {
				t.Errorf("a file that a rewind wrote belongs to %d:%d", st.Uid, st.Gid)
			}
		})
	}
}

// TestHZ25_TrustedPathsOnTheHost: rules about paths hold for a trusted session's files by their paths on the host as well,
// in file tools and in commands, with patterns and through symlinks; other paths stay allowed.
func TestHZ25_TrustedPathsOnTheHost(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	id := keeper(t, c, "trusted")
	tree := filepath.Join(cfg.Data, "sessions", string(id), "workspace")
	call := func(tool, input string) holdfast.TurnEnded {
		t.Helper()
		return turn(t, c, id, fmt.Sprintf(`<script>[{"tool":%q,"input":%s},{"say":"done"}]</script>`, tool, input))
	}
	if end := call("Bash", fmt.Sprintf(`{"command":"cat %s/docs/text"}`, tree)); len(end.Denials) > 0 || !strings.Contains(outcome(t, c, id).Content, canary) {
		t.Fatalf("what is allowed: %+v", end)
	}
	if res, out := run(t, c, id, "ln -s vault link"); res.ExitCode != 0 {
		t.Fatal(out)
	}
	for _, way := range [][2]string{
		{"Read", fmt.Sprintf(`{"file_path":"%s/.env"}`, tree)},
		{"Read", fmt.Sprintf(`{"file_path":"%s/vault/key"}`, tree)},
		{"Read", fmt.Sprintf(`{"file_path":"%s/link/key"}`, tree)},
		{"Write", fmt.Sprintf(`{"file_path":"%s/CLAUDE.md","content":"y"}`, tree)},
		{"Write", fmt.Sprintf(`{"file_path":"%s/app/new","content":"y"}`, tree)},
		{"Bash", fmt.Sprintf(`{"command":"cat %s/vault/key"}`, tree)},
		{"Bash", fmt.Sprintf(`{"command":"cat %s/docs/../vault/key"}`, tree)},
		{"Bash", fmt.Sprintf(`{"command":"cd %s && cat link/key"}`, tree)},
		{"Edit", fmt.Sprintf(`{"file_path":"%s/docs/../CLAUDE.md","old_string":"x","new_string":"y"}`, tree)},
	} {
		if end := call(way[0], way[1]); len(end.Denials) != 1 {
			t.Errorf("%s %s is not denied: %+v", way[0], way[1], end)
		}
	}
	if b, err := os.ReadFile(filepath.Join(tree, "CLAUDE.md")); err != nil || string(b) != "x" {
		t.Errorf("CLAUDE.md is %q, %v", b, err)
	}
}

// TestWSR17_ClaudeOnTheHost: a trusted session runs the CLI on the host, in a lent directory and in a tree of the
// server's own, as the tree's owner: with the host's paths, its transcript in its home, and the model through the server.
// When the trust of the session changes, in either direction, a new agent starts, and the first message that it gets
// contains the conversation so far (WS-R17).
func TestWSR17_ClaudeOnTheHost(t *testing.T) {
	for _, lent := range []bool{false, true} {
		t.Run(fmt.Sprintf("lent=%t", lent), func(t *testing.T) {
			cfg := claudeSettings(t)
			short := filepath.Join(testkit.BaseDir(t), "data") // a socket's path is short
			if err := os.Rename(cfg.Data, short); err != nil {
				t.Fatal(err)
			}
			cfg.Data = short
			t.Cleanup(func() { testkit.EndBoxes(t, short) })
			c, stop := serve(t, cfg)
			slug, tree := siteOf(t, c, cfg, lent)
			owner := statOf(t, tree)
			s := claudeSession(t, c, func(r *holdfast.CreateSession) {
				r.Workspace, r.Trust, r.Mode = string(slug), string(holdfast.Trusted), string(holdfast.ModeBypassPermissions)
			})
			say := func(text, want string) {
				t.Helper()
				if end := turn(t, c, s.ID, text); !strings.Contains(end.Result, want) {
					t.Errorf("%s: %+v, want %q", text, end, want)
				}
			}
			say(inBash(`pwd; id -u; echo made > made; echo "$HOME"`), "done")
			home := filepath.Join(cfg.Data, "sessions", string(s.ID), "home")
			if got := outcome(t, c, s.ID).Content; !strings.Contains(got, tree+"\n"+fmt.Sprint(owner.Uid)+"\n"+home) {
				t.Errorf("the tool says %q", got)
			}
			if st := statOf(t, filepath.Join(tree, "made")); st.Uid != owner.Uid {
				t.Errorf("its file belongs to %d", st.Uid)
			}
			if found := testkit.Glob(home, ".claude/projects/*/*.jsonl"); len(found) != 1 {
				t.Errorf("transcripts %v", found)
			}
			say("two", "You have sent 2 messages")
			if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
				t.Fatal(err)
			}
			say("three", "You have sent 3 messages")
			stop()
			c, _ = serve(t, cfg)
			say("four", "You have sent 4 messages")
			for _, trust := range []string{string(holdfast.Untrusted), string(holdfast.Trusted)} {
				if _, err := c.UpdateSession(t.Context(), s.ID, holdfast.UpdateSession{Trust: &trust}); err != nil {
					t.Fatal(err)
				}
				say(inBash("pwd; cat made"), "done")
				want := tree
				if trust == string(holdfast.Untrusted) {
					want = "/workspace"
				}
				if got := outcome(t, c, s.ID).Content; !strings.Contains(got, want+"\nmade") {
					t.Errorf("%s: the tool says %q", trust, got)
				}
				say("What do you know?", "pwd; id -u")
			}
			wantTiers(t, c, s.ID, "fresh live own own injected live injected live")
			if odd := logged[holdfast.Notice](t, c, s.ID, holdfast.EventNotice); len(odd) > 0 {
				t.Errorf("notices %+v", odd)
			}
		})
	}
}

// TestWSR17_ClaudeOnTheHostAsks: the CLI on the host asks before each tool call, as in a box: rules, hooks' events and
// persons decide, and a rule holds for the host's path of a file.
func TestWSR17_ClaudeOnTheHostAsks(t *testing.T) {
	cfg := claudeSettings(t)
	short := filepath.Join(testkit.BaseDir(t), "data")
	if err := os.Rename(cfg.Data, short); err != nil {
		t.Fatal(err)
	}
	cfg.Data = short
	t.Cleanup(func() { testkit.EndBoxes(t, short) })
	c, _ := serve(t, cfg)
	keeper(t, c, "trusted")
	s := claudeSession(t, c, func(r *holdfast.CreateSession) { r.Agent, r.Trust = "keeper", string(holdfast.Trusted) })
	tree := filepath.Join(cfg.Data, "sessions", string(s.ID), "workspace")
	if end := turn(t, c, s.ID, inBash("cat '"+tree+"/vault/key'")); len(end.Denials) != 1 {
		t.Errorf("a denied path: %+v", end)
	}
	k := startTurn(t, c, s.ID, inBash("echo asked > '"+tree+"/asked'"))
	asked := payload[holdfast.Approval](t, k.until(holdfast.EventApprovalAsked))
	if _, err := os.Lstat(filepath.Join(tree, "asked")); err == nil {
		t.Error("the tool ran before the answer")
	}
	if _, err := c.AnswerApproval(t.Context(), asked.ID, holdfast.AnswerApproval{Decision: "allow"}); err != nil {
		t.Fatal(err)
	}
	if typ, end := k.end(); typ != holdfast.EventTurnCompleted || len(end.Denials) > 0 {
		t.Errorf("%s %+v", typ, end)
	}
	if b, err := os.ReadFile(filepath.Join(tree, "asked")); err != nil || string(b) != "asked\n" {
		t.Errorf("after the answer: %q, %v", b, err)
	}
}
