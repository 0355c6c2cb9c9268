package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// WebhookTolerance is how far the clocks of server and receiver may be apart,
	// unless the receiver says otherwise.
	WebhookTolerance = 5 * time.Minute

	signatureMax  = 1024 // bytes of a header
	signaturesMax = 8    // of one header
)

// VerifyWebhook checks that a request to a webhook comes from who holds the secret,
// unchanged and just now. header is that of holdfast.WebhookSignatureHeader, body
// the bytes as they came; tolerance 0 is WebhookTolerance. It takes the same time
// for every wrong signature.
//
// unauthenticated for a signature that does not hold or is too old, invalid for an
// empty secret. A receiver that must act once remembers the delivery's id for as
// long as the tolerance: within it a copy of the request verifies too.
func VerifyWebhook(secret []byte, header string, body []byte, now time.Time, tolerance time.Duration) error {
	if len(secret) == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "webhook", "the secret is empty").WithHint("use the content of secret_file")
	}
	if tolerance <= 0 {
		tolerance = WebhookTolerance
	}
	refuse := func(why string) error {
		return holdfast.Errorf(holdfast.KindUnauthenticated, "webhook", "the signature %s", why)
	}
	if len(header) > signatureMax {
		return refuse("is too long")
	}
	stamp, sums := "", [][]byte{}
	for part := range strings.SplitSeq(header, ",") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return refuse("is not a list of name=value")
		case name == "t" && stamp != "":
			return refuse("has two times")
		case name == "t":
			stamp = value
		case name == "v1":
			if sum, err := hex.DecodeString(value); err == nil && len(sum) == sha256.Size {
				sums = append(sums, sum)
			}
		}
	}
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || strconv.FormatInt(at, 10) != stamp {
		return refuse("has no time")
	}
	if len(sums) == 0 || len(sums) > signaturesMax {
		return refuse("has no v1")
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	want, holds := mac.Sum(nil), false
	for _, sum := range sums {
		holds = hmac.Equal(sum, want) || holds
	}
	if !holds {
		return refuse("does not hold")
	}
	if off := now.Sub(time.Unix(at, 0)); off > tolerance || off < -tolerance {
		return refuse("is of another time")
	}
	return nil
}
