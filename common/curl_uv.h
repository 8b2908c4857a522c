/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* libcurl's multi interface on the loop. */

#include <curl/curl.h>
#include <uv.h>

struct curl_uv;

/* progress is called each time after curl has worked, and never from within it: so everything
 * may be done there, with this multi handle too. */
struct curl_uv *curl_uv_new(uv_loop_t *loop, void (*progress)(void *ctx), void *ctx);
/* Its easy handles have been removed. Connections are closed now; the handles on the loop close
 * later by themselves. */
void curl_uv_free(struct curl_uv *c);

CURLM *curl_uv_multi(const struct curl_uv *c);
/* Every easy handle has to be told before it is added how its sockets are closed. */
void curl_uv_adopt(struct curl_uv *c, CURL *easy);
