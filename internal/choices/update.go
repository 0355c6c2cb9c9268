package choices

import (
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/network"
)

// Update checks an update and returns its changes of the row and the event that records them. The
// event is empty if the update changes nothing.
func (c *Choices) Update(row journal.Row, req holdfast.UpdateSession) (p journal.RowPatch, ev holdfast.SessionUpdated, err error) {
	if req.Revision != 0 && req.Revision != row.Revision {
		return p, ev, holdfast.Errorf(holdfast.KindConflict, "session.update", "session %s is at revision %d, but the update is for revision %d",
			row.ID, row.Revision, req.Revision).WithHint("read the session again: holdfast session show %s", row.ID)
	}
	if err := planLabels(row, req, &p, &ev); err != nil {
		return p, ev, err
	}
	if req.Mode != nil {
		m, err := holdfast.Parse[holdfast.Mode](*req.Mode)
		if err != nil {
			return p, ev, err
		}
		change(row.Mode, m, &p.Mode, &ev.From.Mode, &ev.Mode)
	}
	if req.Model != nil && *req.Model != row.Model {
		if err := c.cfg.Defaults.CheckModel(*req.Model); err != nil {
			return p, ev, err
		}
		change(row.Model, *req.Model, &p.Model, &ev.From.Model, &ev.Model)
	}
	if req.Runtime != nil && *req.Runtime != row.Runtime {
		change(row.Runtime, *req.Runtime, &p.Runtime, &ev.From.Runtime, &ev.Runtime)
	}
	if err := planBudget("budget", row.Budget, req.Budget, &p.Budget, &ev.From.Budget, &ev.Budget); err != nil {
		return p, ev, err
	}
	if err := planBudget("turn_budget", row.TurnBudget, req.TurnBudget, &p.TurnBudget, &ev.From.TurnBudget, &ev.TurnBudget); err != nil {
		return p, ev, err
	}
	if err := c.cfg.Network.Plan(row, req, &p, &ev); err != nil {
		return p, ev, err
	}
	if err := network.Bound(row, p.Network); err != nil {
		return p, ev, err
	}
	t := row.Trust
	if req.Trust != nil {
		if t, err = decideTrust("session.update", req.Trust, row.Trust, req.MaxTrust); err != nil {
			return p, ev, err
		}
	}
	if t == row.Trust && !labelsOnly(req) {
		// All changes but those of title and tags affect what the session's tools may do: the caller's
		// key must allow the session's trust.
		if err := withinTrust("session.update", t, req.MaxTrust); err != nil {
			return p, ev, err
		}
	}
	runtime := row.Runtime
	if req.Runtime != nil {
		runtime = *req.Runtime
	}
	if t != row.Trust || runtime != row.Runtime {
		if err := c.cfg.Runtimes.Require(runtime, t); err != nil {
			return p, ev, err
		}
	}
	if t == holdfast.Untrusted && row.Trust != t && row.HadFiles && row.Workspace == "" && c.cfg.Root {
		return p, ev, holdfast.Errorf(holdfast.KindConflict, "session.update",
			"a session that worked on the host as root cannot move into a box: its files belong to root").
			WithHint("create a new session with --trust untrusted")
	}
	change(row.Trust, t, &p.Trust, &ev.From.Trust, &ev.Trust)
	return p, ev, nil
}

// labelsOnly reports whether an update changes only title and tags.
func labelsOnly(req holdfast.UpdateSession) bool {
	return req.Mode == nil && req.Model == nil && req.Runtime == nil && req.Trust == nil && req.Budget == nil && req.TurnBudget == nil &&
		req.Network == nil && len(req.AllowNet)+len(req.DenyNet) == 0
}

// planLabels adds the changes of title and tags to a patch and its event.
func planLabels(row journal.Row, req holdfast.UpdateSession, p *journal.RowPatch, ev *holdfast.SessionUpdated) error {
	title, tags := row.Title, row.Tags
	if req.Title != nil {
		title = *req.Title
	}
	if req.Tags != nil {
		tags = *req.Tags
	}
	if err := checkLabels("", req.RemoveTags); err != nil {
		return err
	}
	tags = slices.DeleteFunc(append([]string{}, tags...), func(t string) bool { return slices.Contains(req.RemoveTags, t) })
	for _, t := range req.AddTags {
		if !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	if title == row.Title && slices.Equal(tags, row.Tags) {
		return nil
	}
	if err := checkLabels(title, tags); err != nil {
		return err
	}
	change(row.Title, title, &p.Title, &ev.From.Title, &ev.Title)
	if !slices.Equal(tags, row.Tags) {
		before := append([]string{}, row.Tags...)
		p.Tags, ev.From.Tags, ev.Tags = &tags, &before, &tags
	}
	return nil
}

// planBudget adds the change of a budget, which is replaced as a whole, to a patch and its event.
func planBudget(name string, from, to *holdfast.Budget, patch, was, is **holdfast.Budget) error {
	if to == nil {
		return nil
	}
	if from == nil {
		from = &holdfast.Budget{}
	}
	change(*from, *to, patch, was, is)
	return to.Check(name)
}

// change sets the new value in the patch, and the old and new values in the event, if they differ.
func change[T comparable](from, to T, patch, was, is **T) {
	if from != to {
		*patch, *was, *is = &to, &from, &to
	}
}

// Changed returns the names of the fields that an update changed.
func Changed(ev holdfast.SessionUpdated) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"title", ev.Title != nil},
		{"tags", ev.Tags != nil},
		{"mode", ev.Mode != nil},
		{"model", ev.Model != nil},
		{"trust", ev.Trust != nil},
		{"runtime", ev.Runtime != nil},
		{"budget", ev.Budget != nil},
		{"turn_budget", ev.TurnBudget != nil},
		{"network", ev.Network != nil},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// Imported refuses a message to a session whose initial import of files is incomplete.
func Imported(s holdfast.Session) error {
	if s.Source == nil || s.Source.Complete {
		return nil
	}
	return holdfast.Errorf(holdfast.KindConflict, "send", "the import of files from %s into session %s is incomplete", holdfast.Quote(s.Source.From), s.ID).
		WithHint("complete the import by running the command that created the session once more; or delete the session: holdfast session delete %s --purge", s.ID)
}
