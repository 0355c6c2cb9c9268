package obs

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestLoggerHidesSecrets(t *testing.T) {
	const secret = "hf_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
	for _, format := range []string{"text", "json", "journal"} {
		var out bytes.Buffer
		log, err := NewLogger(&out, format, "debug")
		if err != nil {
			t.Fatal(err)
		}
		log.Info("request "+secret,
			"token", "hidden-1", "owner_token", "hidden-2", "Authorization", "hidden-3", "db-password", "hidden-4",
			"url", "http://x/?t="+secret, "err", errors.New("refused Bearer abcdefgh12345678"),
			slog.Group("request", "cookie", "hidden-5", "path", "/v1"), "anthropic_api_key", 4242424242, "key", "it is hfk_0123456789abcdef_abcdefghijklmnop")
		log.With("secret", "hidden-6").Debug("kept", "input_tokens", 17, "session", "s1")
		got := out.String()
		for _, bad := range []string{"hidden", secret, "abcdefgh12345678", "4242424242", "abcdefghijklmnop"} {
			if strings.Contains(got, bad) {
				t.Errorf("%s: the log shows %q:\n%s", format, bad, got)
			}
		}
		for _, good := range []string{"input_tokens", "17", "s1", "/v1", Redacted} {
			if !strings.Contains(got, good) {
				t.Errorf("%s: the log lost %q:\n%s", format, good, got)
			}
		}
	}
}

func TestLoggerLevels(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "text", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("%s", got)
	}
	for _, c := range [][2]string{{"xml", "info"}, {"text", "loud"}, {"", "info"}, {"json", ""}} {
		if _, err := NewLogger(&out, c[0], c[1]); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("format %q, level %q: %v", c[0], c[1], err)
		}
	}
}

// TestJournalLines: journald reads the level from a prefix of each line, and
// gives the time itself.
func TestJournalLines(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "journal", "debug")
	if err != nil {
		t.Fatal(err)
	}
	log = log.With("request", "r1").WithGroup("turn")
	log.Debug("d", "time", "mine")
	log.Info("i")
	log.Warn("w")
	log.Error("two\nlines")
	want := "<7>msg=d request=r1 turn.time=mine\n<6>msg=i request=r1\n<4>msg=w request=r1\n<3>msg=\"two\\nlines\" request=r1\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
