package boots

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// harmless are the tools that change no file.
var harmless = map[string]bool{
	"Read": true, "Glob": true, "Grep": true, "LS": true, "WebFetch": true, "WebSearch": true, "TodoWrite": true,
}

// synced are the tools of the server's own loop that sync what they write.
var synced = map[string]bool{"Write": true, "Edit": true}

// Fold finds the turns of one session whose files a cut may have taken, in log order. A zero value
// with Since set is ready.
type Fold struct {
	// Since is the result of Cut.Since: only later commands matter.
	Since time.Time
	// Agent is true if the tools run inside an agent CLI in the box, which does not sync the files that it writes.
	Agent bool

	// Direct is true if a hook ran outside of a turn after Since.
	Direct bool
	// Told is the content of the newest notice of a cut in the log; nil if there is none.
	Told *holdfast.FilesAtRisk

	names map[string]string
	turns []holdfast.TurnID
}

// Add processes an event.
func (f *Fold) Add(ev holdfast.Event) error {
	if f.names == nil {
		f.names = map[string]string{}
	}
	switch ev.Type {
	case holdfast.EventAgentStarted, holdfast.EventAgentMirrored:
		f.Agent = true
	case holdfast.EventToolRequested:
		var d holdfast.ToolRequested
		if err := ev.Decode(&d); err != nil {
			return err
		}
		f.names[string(ev.Turn)+"/"+d.ToolUseID] = d.Name
	case holdfast.EventToolFinished:
		var d holdfast.ToolFinished
		if err := ev.Decode(&d); err != nil {
			return err
		}
		if name := f.names[string(ev.Turn)+"/"+d.ToolUseID]; !harmless[name] && (f.Agent || !synced[name]) {
			f.mark(ev)
		}
	case holdfast.EventHookRan:
		var d holdfast.HookRan
		if err := ev.Decode(&d); err != nil {
			return err
		}
		if d.Call != "" {
			f.mark(ev)
		}
	case holdfast.EventNotice:
		var d holdfast.Notice
		if err := ev.Decode(&d); err != nil {
			return err
		}
		if d.Code == holdfast.NoticeFilesAtRisk {
			// Forget the turns before the notice: it names all of them that matter, and the files of the
			// others are on the disk by now.
			f.Told, f.turns, f.Direct = d.AtRisk, nil, false
		}
	}
	return nil
}

func (f *Fold) mark(ev holdfast.Event) {
	switch n := len(f.turns); {
	case ev.Time.Before(f.Since):
	case ev.Turn == "":
		f.Direct = true
	case n == 0 || f.turns[n-1] != ev.Turn:
		f.turns = append(f.turns, ev.Turn)
	}
}

// Turns returns the turns found, in the order of their first command.
func (f *Fold) Turns() []holdfast.TurnID { return f.turns }

// Text returns the text that describes the files at risk to a person and to a model.
func Text(r holdfast.FilesAtRisk) string {
	var who []string
	if len(r.Turns) > 0 {
		who = append(who, numbers(r.Turns))
	}
	if r.Direct {
		who = append(who, "commands outside of turns")
	}
	return fmt.Sprintf("The machine went down without a shutdown (a power cut or a crash), last seen running at %s. "+
		"Files that commands wrote less than a minute before may be missing, empty or old, though the commands ended well: %s. "+
		"Messages, events, and files from Write, Edit (of the native runtime) and uploads are not affected. "+
		"Check the files before you rely on them.", r.LastEvent.UTC().Format(time.DateTime+" UTC"), strings.Join(who, ", "))
}

// numbers returns the numbers of turns as a text, consecutive ones as a range.
func numbers(turns []holdfast.TurnAtRisk) string {
	var b strings.Builder
	for i := 0; i < len(turns); {
		j := i
		for j+1 < len(turns) && turns[j+1].Number == turns[j].Number+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, turns[i].Number)
		if j > i {
			fmt.Fprintf(&b, "-%d", turns[j].Number)
		}
		i = j + 1
	}
	if len(turns) == 1 {
		return "turn " + b.String()
	}
	return "turns " + b.String()
}
