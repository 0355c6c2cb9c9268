package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type containersCmd struct {
	List  containersListCmd  `cmd:"" aliases:"ls" help:"List the managed boxes."`
	Stop  containersStopCmd  `cmd:"" help:"Stop boxes; their files stay, a session starts its box again when it needs it."`
	Prune containersPruneCmd `cmd:"" help:"Remove stopped boxes, boxes of ended sessions, and leftovers; nothing that a live session uses."`
}

type containersListCmd struct{}

// Run lists the boxes.
func (*containersListCmd) Run(e *env) error {
	list, err := ask(e, (*client.Client).Containers)
	if err != nil {
		return err
	}
	return e.showBoxes(list)
}

func (e *env) showBoxes(list []holdfast.Container) error {
	var rows [][]string
	for _, b := range list {
		pid := "-"
		if b.PID > 0 {
			pid = strconv.Itoa(b.PID)
		}
		rows = append(rows, []string{string(b.ID), b.Driver, string(b.State), pid, strconv.Itoa(b.Calls), strconv.Itoa(b.Queued), when(b.StartedAt), when(b.LastUsed)})
	}
	return e.listing(map[string]any{"containers": list}, []string{"ID", "DRIVER", "STATE", "PID", "CALLS", "QUEUED", "STARTED", "LAST USED"}, rows)
}

type containersStopCmd struct {
	Names []string `arg:"" optional:"" help:"Box ids, session ids, or beginnings of them."`
	All   bool     `help:"Stop every box."`
}

// Run stops boxes and lists what was stopped.
func (s *containersStopCmd) Run(e *env) error {
	switch {
	case s.All && len(s.Names) > 0:
		return holdfast.Errorf(holdfast.KindInvalid, "containers stop", "--all stops every box, and boxes are named as well").
			WithHint("leave out the names or --all")
	case !s.All && len(s.Names) == 0:
		return holdfast.Errorf(holdfast.KindInvalid, "containers stop", "no box to stop is named").
			WithHint("holdfast containers list shows the ids of the boxes; holdfast containers stop --all stops every box")
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	req := holdfast.StopContainers{All: s.All}
	if req.IDs, err = e.boxIDs(c, s.Names); err != nil {
		return err
	}
	stopped, err := c.StopContainers(e.ctx, req)
	if err != nil {
		return err
	}
	return e.say(map[string]any{"containers": stopped}, "stopped %s", count(len(stopped), "box", "boxes"))
}

type containersPruneCmd struct {
	DryRun bool `help:"Only show what would be removed."`
}

// Run removes boxes and leftovers that no session needs, and lists them with the reasons.
func (p *containersPruneCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	done, err := c.PruneContainers(e.ctx, p.DryRun)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(done)
	}
	if len(done.Pruned) == 0 {
		return e.say(nil, "nothing to remove")
	}
	verb := "removed"
	if done.DryRun {
		verb = "would remove"
	}
	var rows [][]string
	for _, one := range done.Pruned {
		rows = append(rows, []string{one.Name, one.Driver, verb, one.Reason})
	}
	return e.table([]string{"NAME", "DRIVER", "DONE", "REASON"}, rows)
}

// boxIDs returns the ids of the boxes that names mean: ids of boxes or sessions, or unique
// beginnings of them.
func (e *env) boxIDs(c *client.Client, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	boxes, err := c.Containers(e.ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		var found []string
		for _, b := range boxes {
			match := strings.HasPrefix(string(b.ID), name) || strings.HasPrefix(string(b.Session), name)
			if match && !slices.Contains(found, string(b.ID)) {
				found = append(found, string(b.ID))
			}
		}
		switch len(found) {
		case 0:
			return nil, holdfast.Errorf(holdfast.KindNotFound, "containers stop", "no box has an id or a session id that begins with %s", holdfast.Quote(name)).
				WithHint("holdfast containers list shows the ids of the boxes")
		case 1:
			out = append(out, found[0])
		default:
			return nil, holdfast.Errorf(holdfast.KindInvalid, "containers stop", "%s is the beginning of several box or session ids", holdfast.Quote(name)).
				WithHint("give more characters of the box or session id")
		}
	}
	return out, nil
}
