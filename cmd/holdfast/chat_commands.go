package main

import (
	"context"
	"strings"
	"time"
)

// command does what a line with a slash says.
func (t *talk) command(text string) (over bool, err error) {
	name, arg, _ := strings.Cut(text, " ")
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	switch name {
	case "/quit", "/exit":
		return true, t.leave(0)
	case "/interrupt":
		t.interrupt()
		return false, nil
	case "/help":
		for _, l := range []string{
			"/status        the session, its turns and what waits",
			"/files [DIR]   the files of the workspace",
			"/interrupt     end the running turn; Ctrl-C does the same",
			"/quit          leave; the session stays. Ctrl-D does the same",
			"//TEXT         send a message that begins with a slash",
		} {
			t.say("%s", l)
		}
		return false, nil
	case "/status":
		err = t.status(ctx)
	case "/files":
		err = t.files(ctx, strings.TrimSpace(arg))
	default:
		t.say("there is no %s; /help lists what there is, and // sends a message that begins with a slash", name)
		return false, nil
	}
	if err != nil {
		t.trouble(err)
	}
	return false, nil
}

func (t *talk) status(ctx context.Context) error {
	s, err := t.c.Session(ctx, t.session.ID)
	if err != nil {
		return err
	}
	t.session.Status = s.Status
	t.view.breakLine()
	if err := t.e.showSession(s); err != nil {
		return err
	}
	switch {
	case t.waiting > 0:
		t.say("%s on the way to the server", count(t.waiting, "message", "messages"))
	case len(t.open) > 1:
		t.say("a turn runs, %s", count(len(t.open)-1, "message waits", "messages wait"))
	case t.running != "" || len(t.open) > 0:
		t.say("a turn runs")
	default:
		t.say("nothing runs")
	}
	return nil
}

func (t *talk) files(ctx context.Context, dir string) error {
	list, err := t.c.ListFiles(ctx, t.session.ID, dir)
	if err != nil {
		return err
	}
	t.view.breakLine()
	return t.e.showFiles(list)
}
