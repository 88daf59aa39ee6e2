"""SHA-256 of every jar that `semistream.spark.cluster.jars` names, of all releases known to it.

Computed from Maven Central, and the same that it publishes, where it publishes any.
"""

from __future__ import annotations

__all__ = ["DIGESTS"]

DIGESTS = {
    "commons-pool2-2.12.0.jar": (
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b"
    ),
    "commons-pool2-2.12.1.jar": (
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef"
    ),
    "commons-pool2-2.13.1.jar": (
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"
    ),
    "delta-spark_4.0_2.13-4.4.0.jar": (
        "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104"
    ),
    "delta-spark_4.1_2.13-4.4.0.jar": (
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"
    ),
    "delta-spark_4.2_2.13-4.4.0.jar": (
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"
    ),
    "delta-storage-4.4.0.jar": ("c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    "iceberg-spark-runtime-4.0_2.13-1.11.0.jar": (
        "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc"
    ),
    "iceberg-spark-runtime-4.1_2.13-1.12.0.jar": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "kafka-clients-3.9.1.jar": ("7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9"),
    "kafka-clients-3.9.2.jar": ("014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"),
    "postgresql-42.7.14.jar": ("73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"),
    "spark-sql-kafka-0-10_2.13-4.0.0.jar": (
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3"
    ),
    "spark-sql-kafka-0-10_2.13-4.0.1.jar": (
        "a9c5366a61087e7e7ff903c3dc160e80b33d2ea04d365e0795cc4a58befc3a16"
    ),
    "spark-sql-kafka-0-10_2.13-4.0.2.jar": (
        "faa232c017b0cb4480c14643eb82abf6d0cac4b4d032059bf999b9246d045eb6"
    ),
    "spark-sql-kafka-0-10_2.13-4.0.3.jar": (
        "6591c1556daee42a76e0bce3307c6b924df890142354e84ab38b546bbab27f89"
    ),
    "spark-sql-kafka-0-10_2.13-4.0.4.jar": (
        "b2f7b3a4fbf292b5bf10bd4dd6af301eded9c9985b16239b407401d66dbc8a25"
    ),
    "spark-sql-kafka-0-10_2.13-4.1.0.jar": (
        "a335b885043bbe0d553ab70738418a45eb4cda94a28718e4b62a347046c03723"
    ),
    "spark-sql-kafka-0-10_2.13-4.1.1.jar": (
        "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c"
    ),
    "spark-sql-kafka-0-10_2.13-4.1.2.jar": (
        "1dce8c690aea67bba8942eaa0280aa5dbc16e0c7c64bd0b1777b919b36d7ab2e"
    ),
    "spark-sql-kafka-0-10_2.13-4.1.3.jar": (
        "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6"
    ),
    "spark-sql-kafka-0-10_2.13-4.2.0.jar": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar": (
        "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b"
    ),
}
